package moves

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// repository has the content of moves to and from west travel through the object store that
// a Secret names; empty: through none.
func repository(t *testing.T, secret string) {
	t.Helper()
	value := "null"
	if secret != "" {
		value = fmt.Sprintf(`{"secretName":%q}`, secret)
	}
	repositoryIs(t, value)
}

// repositoryIs sets how the content of moves to and from west travels.
func repositoryIs(t *testing.T, value string) {
	t.Helper()
	_, err := bed.Remotes.Patch(context.WithoutCancel(t.Context()), "west", types.MergePatchType, []byte(`{"spec":{"moveRepository":`+value+`}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// refusedSoon has a move to west tried until it is refused, since the provisioner may not
// have heard yet of how content travels, and returns why.
func refusedSoon(t *testing.T, namespace string) string {
	t.Helper()
	var refused *v1alpha1.VolumeMove
	await.Until(t, "a move is refused", func() bool {
		tried := move(t, namespace, "data", "west", anew, func(m *v1alpha1.VolumeMove) { m.Spec.DryRun = true })
		refused = reaches(t, tried, v1alpha1.MoveChecked, v1alpha1.MoveFailed)
		return refused.Status.Phase == v1alpha1.MoveFailed
	})
	return refused.Status.Message
}

// requireCarried moves a volume from a folder to west and checks that so much of its content
// went through the repository, and that its application goes on there.
func requireCarried(t *testing.T, namespace, from string, content int) {
	t.Helper()
	done := reaches(t, move(t, namespace, "data", "west", anew), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	claim := done.Status.Claims[0]
	assert.Equal(t, "west", claim.Repository)
	assert.GreaterOrEqual(t, claim.Stored, int64(content))
	assert.Less(t, claim.Sent, int64(content/4), "the content goes from mover to mover")
	at := folder(t, namespace, "data")
	assert.NotEqual(t, from, at)
	counts(t, at, counted(t, at)+10)
}

func TestContentTravelsThroughTheObjectStoreThatAnAdministratorNames(t *testing.T) {
	namespace := space(t)
	from, content := keepsLarge(t, namespace)
	repository(t, "object-store")
	defer repository(t, "")

	assert.Contains(t, refusedSoon(t, namespace), "there is no Secret "+fabric.System+"/object-store")

	server, err := store.Start(t.Context(), programs.Server, t.TempDir())
	require.NoError(t, err)
	defer server.Stop()
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	_, err = secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "object-store"}, Data: server.Secret()}, metav1.CreateOptions{})
	require.NoError(t, err)
	defer func() {
		_ = secrets.Delete(context.WithoutCancel(t.Context()), "object-store", metav1.DeleteOptions{})
	}()
	would := reaches(t, move(t, namespace, "data", "west", anew, func(m *v1alpha1.VolumeMove) { m.Spec.DryRun = true }), v1alpha1.MoveChecked, v1alpha1.MoveFailed)
	assert.Contains(t, would.Status.Message, "through the object store of cluster west")

	requireCarried(t, namespace, from, len(content))
	await.Until(t, "nothing is left in the object store", func() bool {
		files, err := server.Files()
		return err == nil && len(files) == 0
	}, func() any { files, _ := server.Files(); return files })

	// What opens the store is nowhere but where the administrator has put it.
	var holders []string
	for name, cluster := range map[string]*testbed.Cluster{"home": bed.Home, "west": bed.West} {
		all, err := cluster.Client().CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, secret := range all.Items {
			for _, value := range secret.Data {
				if strings.Contains(string(value), server.Password) {
					holders = append(holders, name+"/"+secret.Namespace+"/"+secret.Name)
				}
			}
		}
	}
	assert.Equal(t, []string{"home/" + fabric.System + "/object-store"}, holders)
}
