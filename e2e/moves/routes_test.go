package moves

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// class makes a virtual class of which claims may ask for any real class, and have one
// at home else.
func class(t *testing.T, name, atHome string) {
	t.Helper()
	classes := bed.Home.Client().StorageV1().StorageClasses()
	made, err := classes.Get(t.Context(), fabric.Class, metav1.GetOptions{})
	require.NoError(t, err)
	made.ObjectMeta = metav1.ObjectMeta{Name: name}
	made.Parameters = map[string]string{keys.LocalClass: atHome, keys.Classes: fabric.HomeWait + "," + fabric.HomeNow + "," + fabric.WestWait + "," + fabric.WestNow}
	_, err = classes.Create(t.Context(), made, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// realClass returns the real class that a claim's data is in.
func realClass(t *testing.T, namespace, claim string) string {
	t.Helper()
	volume := await.Volume(t, bed.Home.Client(), await.Claim(t, bed.Home.Client(), namespace, claim).Spec.VolumeName)
	ref, err := backings.RefOf(volume)
	require.NoError(t, err)
	cluster := bed.West
	if ref.Cluster == keys.Home {
		cluster = bed.Home
	}
	return *await.Claim(t, cluster.Client(), ref.Namespace, ref.Name).Spec.StorageClassName
}

func TestAVolumeGoesFromOneRealClassToAnother(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	class(t, namespace, fabric.HomeWait)
	deploysIn(t, namespace, namespace, "data")
	require.Equal(t, fabric.HomeWait, realClass(t, namespace, "data"))
	for _, row := range []struct{ cluster, class string }{
		{keys.Home, fabric.HomeNow}, {keys.Home, fabric.HomeWait}, {"west", fabric.WestNow}, {keys.Home, fabric.HomeNow},
	} {
		from := folder(t, namespace, "data")
		done := reaches(t, move(t, namespace, "data", row.cluster, func(m *v1alpha1.VolumeMove) {
			m.Name, m.GenerateName, m.Spec.ClassName = "", "to-", row.class
		}), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		assert.Equal(t, row.class, realClass(t, namespace, "data"))
		at := folder(t, namespace, "data")
		assert.NotEqual(t, from, at)
		counts(t, at, counted(t, at)+10)
	}
}

// east is a second remote cluster: the one of another bed, whose home is not used.
var east *fabric.Fabric

// joins starts east, and registers it at home.
func joins(t *testing.T) {
	t.Helper()
	mover, err := fabric.BuildMover(t.Context())
	require.NoError(t, err)
	east, err = fabric.Start(t.Context(), fabric.Options{ControllerManagerQPS: 500, Agent: true, Programs: map[string]string{"lodestone-mover": mover}})
	require.NoError(t, err)
	t.Cleanup(east.Stop)
	_, err = east.StartAgent(t.Context())
	require.NoError(t, err)
	system, err := bed.Home.Client().CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	require.NoError(t, err)
	kubeconfig, err := east.Tenant(t.Context(), func(home *remotev1alpha1.HomeCluster) {
		home.Name, home.Spec.ClusterUID = string(system.UID)[:8], string(system.UID)
	})
	require.NoError(t, err)
	require.NoError(t, bed.Register(t.Context(), "east", kubeconfig))
	t.Cleanup(func() { _ = bed.Remotes.Delete(context.Background(), "east", metav1.DeleteOptions{}) })
	require.NoError(t, bed.AwaitReady(t.Context(), "east", metav1.ConditionTrue))
	require.NoError(t, bed.AwaitNode(t.Context(), "east", corev1.ConditionTrue))
}

func TestAVolumeGoesFromOneRemoteClusterToAnother(t *testing.T) {
	namespace := space(t)
	joins(t)
	deploys(t, namespace, "data")
	before := await.Claim(t, bed.Home.Client(), namespace, "data")
	for _, cluster := range []string{"west", "east", "west", keys.Home} {
		done := reaches(t, move(t, namespace, "data", cluster, func(m *v1alpha1.VolumeMove) { m.Name, m.GenerateName = "", "to-" }),
			v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		assert.Equal(t, cluster, done.Status.Target.Cluster)
		t.Log("to", cluster, "downtime", done.Status.Downtime.Duration, spans(done))
		at := folder(t, namespace, "data")
		counts(t, at, counted(t, at)+10)
		nothingLeft(t, namespace, done)
	}
	assert.Equal(t, before.UID, await.Claim(t, bed.Home.Client(), namespace, "data").UID)
}
