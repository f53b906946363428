package moves

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// nothingLeft waits until nothing of a move is left but its VolumeMove and, where the
// data stayed, nothing at the target.
func nothingLeft(t *testing.T, namespace string, made *v1alpha1.VolumeMove) {
	t.Helper()
	of := metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)}
	left := func() []string {
		var names []string
		for _, place := range []struct {
			cluster   string
			namespace string
		}{{"home", fabric.Storage}, {"west", namespace}} {
			cluster := bed.West
			if place.cluster == "home" {
				cluster = bed.Home
			}
			core := cluster.Client().CoreV1()
			pods, err := core.Pods(place.namespace).List(t.Context(), of)
			require.NoError(t, err)
			claims, err := core.PersistentVolumeClaims(place.namespace).List(t.Context(), of)
			require.NoError(t, err)
			secrets, err := core.Secrets(place.namespace).List(t.Context(), of)
			require.NoError(t, err)
			for _, pod := range pods.Items {
				names = append(names, place.cluster+" pod "+pod.Name)
			}
			for _, claim := range claims.Items {
				names = append(names, place.cluster+" claim "+claim.Name)
			}
			for _, secret := range secrets.Items {
				names = append(names, place.cluster+" Secret "+secret.Name)
			}
		}
		return names
	}
	await.Until(t, "nothing of the move is left", func() bool { return len(left()) == 0 }, func() any { return left() })
}

// keysOf returns the Secrets of the movers of a move, and a function that makes them once
// more, as requests do that arrive late.
func keysOf(t *testing.T, namespace string, made *v1alpha1.VolumeMove) (n int, again func()) {
	t.Helper()
	var late []func()
	for _, secrets := range []corev1client.SecretInterface{bed.Home.Client().CoreV1().Secrets(fabric.Storage), bed.West.Client().CoreV1().Secrets(namespace)} {
		list, err := secrets.List(t.Context(), metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
		require.NoError(t, err)
		for i := range list.Items {
			found := &list.Items[i]
			late = append(late, func() {
				_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: found.Name, Labels: found.Labels, OwnerReferences: found.OwnerReferences}, Data: found.Data}, metav1.CreateOptions{})
				require.NoError(t, err)
			})
		}
	}
	return len(late), func() {
		for _, create := range late {
			create()
		}
	}
}

func TestAMoveThatIsAbortedLeavesTheApplicationWhereItWas(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	from := folder(t, namespace, "data")
	for _, row := range []struct {
		in      v1alpha1.MovePhase
		deleted bool
	}{{in: v1alpha1.MoveProvision}, {in: v1alpha1.MovePreCopy}, {in: v1alpha1.MoveQuiesce}, {in: v1alpha1.MovePreCopy, deleted: true}} {
		made := move(t, namespace, "data", "west")
		reaches(t, made, row.in, v1alpha1.MoveFence, v1alpha1.MoveFinalSync)
		again := func() {}
		if row.deleted {
			var n int
			n, again = keysOf(t, namespace, made)
			require.Equal(t, 2, n, "both movers have keys")
			require.NoError(t, moves(t, namespace).Delete(t.Context(), made.Name, metav1.DeleteOptions{}))
		} else {
			act(t, made, v1alpha1.ActionAbort)
			over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
			require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
			require.NoError(t, moves(t, namespace).Delete(t.Context(), made.Name, metav1.DeleteOptions{}))
		}
		await.Until(t, "the VolumeMove is gone", func() bool {
			_, err := moves(t, namespace).Get(t.Context(), made.Name, metav1.GetOptions{})
			return err != nil
		})
		nothingLeft(t, namespace, made)
		again()
		nothingLeft(t, namespace, made)
		assert.Equal(t, from, folder(t, namespace, "data"), "aborted in %s", row.in)
		counts(t, from, counted(t, from)+10)
		secrets, err := bed.Home.Client().CoreV1().Secrets(fabric.System).List(t.Context(), metav1.ListOptions{LabelSelector: keys.MoveOf + "=" + string(made.UID)})
		require.NoError(t, err)
		assert.Empty(t, secrets.Items, "the record goes with the VolumeMove")
	}
}

func TestAProvisionerThatIsKilledGoesOnWithAMove(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data")
	to := map[bool]string{true: "west", false: keys.Home}
	west := true
	for _, phase := range []v1alpha1.MovePhase{v1alpha1.MoveFence, v1alpha1.MoveCommit} {
		made := move(t, namespace, "data", to[west])
		reaches(t, made, phase, v1alpha1.MoveRetain)
		// Not as SIGKILL would, but between two steps; steps that are cut off are the
		// business of the tests of decisions.
		require.NoError(t, provisioner.Stop())
		var err error
		provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()))
		require.NoError(t, err)
		done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		nothingLeft(t, namespace, made)
		at := folder(t, namespace, "data")
		counts(t, at, counted(t, at)+10)
		require.NoError(t, moves(t, namespace).Delete(t.Context(), made.Name, metav1.DeleteOptions{}))
		west = !west
	}
	claim := await.Claim(t, bed.Home.Client(), namespace, "data")
	assert.Equal(t, corev1.ClaimBound, claim.Status.Phase)
}
