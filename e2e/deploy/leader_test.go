package deploy

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/provisioner/app"
)

// Another replica has the lease, as after an outage of the API server.
func TestProvisionerThatLosesItsLeaseEndsSoThatItIsStartedAgain(t *testing.T) {
	apply(t, "base")
	options := app.NewOptions()
	options.HTTPAddress = ""
	options.LeaseDuration = 3 * time.Second
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(context.WithoutCancel(t.Context()), &app.Config{Options: *options, Home: cluster.AdminConfig()})
	}()

	leases := cluster.Client().CoordinationV1().Leases(options.Namespace)
	require.Eventually(t, func() bool {
		lease, err := leases.Get(t.Context(), "lodestone-provisioner", metav1.GetOptions{})
		return err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != ""
	}, waitLong, poll, "it never led")

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
	}, waitLong, poll, "the lease could not be taken")

	select {
	case err := <-ended:
		require.ErrorContains(t, err, "leadership was lost")
	case <-time.After(waitLong):
		require.Fail(t, "it neither leads nor ends")
	}
}
