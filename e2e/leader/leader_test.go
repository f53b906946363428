// Package leader tests what a provisioner does when it loses its lease, on a
// cluster of its own.
package leader

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/provisioner/app"
)

const (
	long  = time.Minute
	often = 50 * time.Millisecond
)

var home *testbed.Cluster

func TestMain(m *testing.M) {
	testbed.Main(m, func(ctx context.Context) error {
		clusters, err := testbed.Start(ctx, testbed.Config{Name: "home"})
		if err != nil {
			return err
		}
		home = clusters[0]
		return nil
	})
}

func TestProvisionerThatLosesItsLeaseEndsSoThatItIsStartedAgain(t *testing.T) {
	testbed.Require(t)
	base, err := home.Kustomization("base")
	require.NoError(t, err)
	must.Kubectl(t, home, "", "apply", "-k", base)

	options := app.NewOptions()
	options.HTTPAddress = ""
	options.LeaseDuration = 3 * time.Second
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(context.WithoutCancel(t.Context()), &app.Config{Options: *options, Home: home.AdminConfig()})
	}()

	leases := home.Client().CoordinationV1().Leases(options.Namespace)
	require.Eventually(t, func() bool {
		lease, err := leases.Get(t.Context(), "lodestone-provisioner", metav1.GetOptions{})
		return err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != ""
	}, long, often, "it never led")

	// Another replica has it, as after an outage of the API server.
	require.Eventually(t, func() bool {
		lease, err := leases.Get(t.Context(), "lodestone-provisioner", metav1.GetOptions{})
		if err != nil {
			return false
		}
		lease.Spec.HolderIdentity = ptr.To("another")
		lease.Spec.LeaseDurationSeconds = ptr.To[int32](3600)
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	}, long, often, "the lease could not be taken")

	select {
	case err := <-ended:
		require.ErrorContains(t, err, "leadership was lost")
	case <-time.After(long):
		require.Fail(t, "it neither leads nor ends")
	}
}
