package moves

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// marks writes all that a move writes on claims on one that no move holds.
func marks(t *testing.T, client kubernetes.Interface, namespace, claim string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"finalizers":[%q,"kubernetes.io/pvc-protection"],"labels":{%q:%q},`+
		`"annotations":{%q:"0-0",%q:"1"}}}`, keys.MoveFinalizer, keys.Moving, keys.MovingNow, keys.Move, keys.MoveTouched)
	must.Patch(t, client.CoreV1().PersistentVolumeClaims(namespace), claim, types.MergePatchType, patch)
}

// isMarked says whether anything that a move writes on a claim keeps it, or holds its pods.
func isMarked(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[keys.Move] != "" || claim.Labels[keys.Moving] != "" || slices.Contains(claim.Finalizers, keys.MoveFinalizer)
}

// unmarked waits until nothing of a move is on a claim.
func unmarked(t *testing.T, namespace, name string) {
	t.Helper()
	var claim *corev1.PersistentVolumeClaim
	await.Until(t, "claim "+name+" is unlocked", func() bool {
		claim = await.Claim(t, bed.Home.Client(), namespace, name)
		return claim != nil && !isMarked(claim)
	}, func() any { return claim.ObjectMeta }, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	for _, key := range []string{keys.Move, keys.MoveTouched, keys.Unlock} {
		assert.NotContains(t, claim.Annotations, key)
	}
}

func TestAClaimThatIsLockedForNoMoveIsUnlocked(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	makes(t, fabric.NewClaim(namespace, "data", fabric.Class), fabric.AtHome(application(namespace, "first", "data")))
	client, err := kubernetes.NewForConfig(tenant(t, namespace))
	require.NoError(t, err)
	marks(t, client, namespace, "data")
	waits := fabric.AtHome(application(namespace, "second", "data"))
	waits.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}}
	must.Create(t, client.CoreV1().Pods(namespace), waits)
	unmarked(t, namespace, "data")
	bed.AwaitRunning(t, namespace, "second")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, "data", "MoveMarksRemoved"), "there is no such move")

	// One without a volume, and one that is being deleted.
	never := fabric.NewClaim(namespace, "never", fabric.Class)
	must.Create(t, client.CoreV1().PersistentVolumeClaims(namespace), never)
	marks(t, client, namespace, "never")
	must.Delete(t, client.CoreV1().PersistentVolumeClaims(namespace), "never")
	await.Until(t, "a claim that is deleted while it is locked goes", func() bool {
		return await.Claim(t, bed.Home.Client(), namespace, "never") == nil
	})
}

func TestWhatAMoveWritesOnClaimsIsNotCreatedByOthers(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	client, err := kubernetes.NewForConfig(tenant(t, namespace))
	require.NoError(t, err)
	claim := fabric.NewClaim(namespace, "restored", fabric.Class)
	claim.Finalizers = []string{"example.com/own", keys.MoveFinalizer}
	claim.Labels = map[string]string{keys.Moving: keys.MovingNow, "app": "db"}
	claim.Annotations = map[string]string{keys.Move: "m1", keys.MoveTouched: "1", keys.Unlock: "true", "example.com/note": "kept"}
	made, err := client.CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	assert.False(t, isMarked(made), "%v", made.ObjectMeta)
	assert.Contains(t, made.Finalizers, "example.com/own")
	assert.Equal(t, map[string]string{"app": "db"}, made.Labels)
	assert.Equal(t, map[string]string{"example.com/note": "kept"}, made.Annotations)
}

// TestAClaimStaysLockedWhileNewerDataOfItMayExist is about a home that was restored to before a move.
func TestAClaimStaysLockedWhileNewerDataOfItMayExist(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	makes(t, fabric.NewClaim(namespace, "data", fabric.Class), fabric.AtHome(application(namespace, "here", "data")))
	makes(t, fabric.NewClaim(namespace, "there", fabric.Class), onWest(application(namespace, "there", "there")))
	claim := await.Claim(t, bed.Home.Client(), namespace, "data")
	id, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	newer := fabric.NewClaim(namespace, "data", fabric.WestNow)
	newer.Labels = map[string]string{keys.ClaimUID: string(claim.UID), keys.HomeID: id}
	newer.Annotations = map[string]string{keys.Claim: namespace + "/data"}
	must.Create(t, bed.West.Client().CoreV1().PersistentVolumeClaims(namespace), newer)

	client := owner(t, namespace)
	marks(t, client, namespace, "data")
	told := await.Event(t, bed.Home.Client(), namespace, "data", "MoveMarksStay")
	assert.Contains(t, told, "real claim "+namespace+"/data in cluster west may have newer data")
	assert.Contains(t, told, "kubectl annotate pvc data -n "+namespace+" lodestone.dev/unlock=true")
	assert.True(t, isMarked(await.Claim(t, bed.Home.Client(), namespace, "data")))

	unlock := func(client kubernetes.Interface) error {
		_, err := client.CoreV1().PersistentVolumeClaims(namespace).Patch(t.Context(), "data", types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, keys.Unlock), metav1.PatchOptions{})
		return err
	}
	err = unlock(client)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.Contains(t, err.Error(), "only who may unlock volumemoves")
	require.NoError(t, unlock(bed.Home.Client()))
	unmarked(t, namespace, "data")
}

func TestOnlyWhoMayUnlockChoosesWhichDataOfAClaimIsUsed(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	owner(t, namespace)
	users, err := clients.NewVolumeMoveClient(bed.Home.UserConfig(ownerOf(namespace)))
	require.NoError(t, err)
	create := func(who *clients.VolumeMoves, adopt string) error {
		_, err := who.Create(t.Context(), &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Name: "choice"},
			Spec: v1alpha1.VolumeMoveSpec{Claims: []string{"data"}, Target: v1alpha1.MoveTarget{Cluster: "west"}, Adopt: adopt},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	await.Until(t, "the owner may move volumes", func() bool { return create(users.In(namespace), "") == nil })
	err = create(users.In(namespace), "0-0")
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	assert.ErrorContains(t, err, "only who may unlock volumemoves")
	require.NoError(t, create(moves(t, namespace), "0-0"))
}

// ownerOf is the name of the administrator of a namespace.
func ownerOf(namespace string) string { return "owner-of-" + namespace }

// owner returns a client of the administrator of a namespace, who has the ClusterRole admin there and nothing else.
func owner(t *testing.T, namespace string) kubernetes.Interface {
	t.Helper()
	user := ownerOf(namespace)
	must.Create(t, bed.Home.Client().RbacV1().RoleBindings(namespace), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	client, err := kubernetes.NewForConfig(bed.Home.UserConfig(user))
	require.NoError(t, err)
	await.Until(t, "the rights are known", func() bool {
		_, err := client.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	return client
}
