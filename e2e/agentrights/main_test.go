// Package agentrights tests that the roles of the remote agent and of the virtual node
// program give what is used and no more, as package rights does for the others.
package agentrights

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	agent "github.com/lodestone-storage/lodestone/remoteagent/app"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// bed is empty without control planes, so that tests get as far as to skip.
var (
	bed    = &fabric.Fabric{}
	homeID string
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) (err error) {
		if bed, err = fabric.Start(ctx, fabric.Options{ControllerManagerQPS: 500, AuditAll: true, Agent: true, VirtualNode: true}); err != nil {
			return err
		}
		if homeID, err = bed.HomeID(ctx); err != nil {
			return err
		}
		if _, err := bed.StartProvisioner(ctx); err != nil {
			return err
		}
		if _, err := bed.StartExtender(ctx); err != nil {
			return err
		}
		if _, err := bed.StartAgent(ctx, func(c *agent.Config) { c.LeaderElect, c.LeaseDuration = true, 4*time.Second }); err != nil {
			return err
		}
		if _, err := bed.StartVirtualNode(ctx, func(c *virtualnode.Config) { c.LeaderElect, c.LeaseDuration = true, 4*time.Second }); err != nil {
			return err
		}
		kubeconfig, err := bed.Tenant(ctx, limit("10"))
		if err != nil {
			return err
		}
		if err := bed.Register(ctx, "west", kubeconfig); err != nil {
			return err
		}
		return bed.AwaitNode(ctx, fabric.WestNode, corev1.ConditionTrue)
	})
}

// limit has the namespaces of a home cluster have quotas and limits, and offers as
// many CPUs as claims.
func limit(claims string) func(*remotev1alpha1.HomeCluster) {
	return func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Offer = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(claims)}
		home.Spec.Namespaces.Quota = corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse(claims)}
		home.Spec.Namespaces.Limits = []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}}
	}
}
