package moves

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// standard has west enforce a Pod Security Standard in home's namespaces, until the test ends.
func standard(t *testing.T, level string) {
	t.Helper()
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	set := func(ctx context.Context, value string) {
		_, err := bed.Agents.HomeClusters().Patch(ctx, id, types.MergePatchType, []byte(`{"spec":{"namespaces":{"podSecurity":`+value+`}}}`),
			metav1.PatchOptions{})
		require.NoError(t, err)
	}
	set(t.Context(), `"`+level+`"`)
	t.Cleanup(func() { set(context.Background(), "null") })
}

// asUser makes a pod one that every namespace admits: of a user and a group of its own, with volumes of another group.
func asUser(pod *corev1.Pod) {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(12345)), RunAsGroup: ptr.To(int64(12345)), FSGroup: ptr.To(int64(23456)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func rootless(m *v1alpha1.VolumeMove) { m.Spec.Rootless = true }

// named gives a move a name of its own.
func named(name string) func(*v1alpha1.VolumeMove) {
	return func(m *v1alpha1.VolumeMove) { m.Name = name }
}

// It is not parallel: all namespaces in west are restricted meanwhile.
func TestAVolumeGoesToANamespaceThatAdmitsNoRootAndBack(t *testing.T) {
	namespace := space(t)
	standard(t, "restricted")
	claim, pod := fabric.NewClaim(namespace, "data", fabric.Class), application(namespace, "data", "data")
	asUser(pod)
	beginsWith(t, pod, claim)
	goesOn(t, namespace, "data", asUser)

	// As root nothing can be moved, which is said, with the way out.
	asRoot := move(t, namespace, "data", "west", named("as-root"))
	await.Until(t, "the move says what is in its way", func() bool {
		now := must.Get(t, moves(t, namespace), asRoot.Name)
		return strings.Contains(now.Status.Message, "admits no pods of root (Pod Security restricted): make another move with spec.rootless "+
			"(--rootless)")
	}, func() any {
		now, _ := moves(t, namespace).Get(t.Context(), asRoot.Name, metav1.GetOptions{})
		return now.Status
	})
	act(t, asRoot, v1alpha1.ActionAbort)
	reaches(t, asRoot, v1alpha1.MoveAborted)

	for _, cluster := range []string{"west", keys.Home} {
		from := folder(t, namespace, "data")
		done := reaches(t, move(t, namespace, "data", cluster, rootless), v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
		require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
		assert.Equal(t, done.Status.Claims[0].SourceRoot, done.Status.Claims[0].TargetRoot)
		to := folder(t, namespace, "data")
		assert.NotEqual(t, from, to)
		counts(t, to, counted(t, to)+20)
		s, err := os.Stat(filepath.Join(to, "log"))
		require.NoError(t, err)
		assert.Equal(t, uint32(12345), s.Sys().(*syscall.Stat_t).Uid)
	}

	// A file of somebody else: nothing is written, and the message names it.
	from := folder(t, namespace, "data")
	require.NoError(t, os.WriteFile(filepath.Join(from, "of-root"), nil, 0o600))
	failed := reaches(t, move(t, namespace, "data", "west", rootless, named("others")), v1alpha1.MoveDone, v1alpha1.MoveFailed)
	assert.Equal(t, v1alpha1.MoveFailed, failed.Status.Phase)
	assert.Contains(t, failed.Status.Message, "of-root: it belongs to another user or group than the mover at the target has (user 12345, "+
		"groups [12345 23456])")
	counts(t, from, counted(t, from)+5)
}

func TestAMoveWithoutRootNeedsPodsThatSayWhoTheyAre(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	deploys(t, namespace, "data")
	failed := reaches(t, move(t, namespace, "data", "west", rootless), v1alpha1.MoveDone, v1alpha1.MoveFailed)
	assert.Equal(t, v1alpha1.MoveFailed, failed.Status.Phase)
	assert.Contains(t, failed.Status.Message, "does not say as which user it runs: have it say so in securityContext.runAsUser")
}
