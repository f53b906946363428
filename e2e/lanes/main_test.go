// Package lanes tests the network fabric as clusters have it: real agents and probes, on nodes and in pods of network namespaces
// (e2e/netlab), are told by real API servers what to do, with the rights of deploy/, and the virtual node program joins the two clusters.
package lanes

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// bed is shared by the tests of this package. Without control planes it is empty, so that tests get as far as to skip.
var (
	bed    = &fabric.Fabric{}
	homeID string
)

// lease is longer than an API server is away.
const lease = 10 * time.Minute

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		// Nobody plays a kubelet on the nodes that are network namespaces.
		patient := []string{"--node-monitor-grace-period=10h"}
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, ControllerManagerArgs: patient, Agent: true,
			VirtualNode: true}); err != nil {
			return err
		}
		if homeID, err = bed.HomeID(ctx); err != nil {
			return err
		}
		// Unlike Deployments, nothing here starts programs again that lose their leases while home's API server is away.
		if _, err := bed.StartProvisioner(ctx, func(c *provisioner.Config) { c.LeaseDuration = lease }); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if _, err := bed.StartAgent(ctx); err != nil {
			return err
		}
		if _, err := bed.StartVirtualNode(ctx, func(c *virtualnode.Config) { c.LeaseDuration = lease }); err != nil {
			return err
		}
		if err := bed.Admit(ctx, func(home *remotev1alpha1.HomeCluster) {
			home.Spec.Network = &remotev1alpha1.NetworkPolicy{PodCIDRs: []string{"10.1.0.0/16"}}
		}); err != nil {
			return err
		}
		return bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
	})
}
