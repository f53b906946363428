package moves

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/store"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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
	_, err := bed.Remotes.Patch(context.WithoutCancel(t.Context()), "west", types.MergePatchType,
		[]byte(`{"spec":{"moveRepository":`+value+`}}`), metav1.PatchOptions{})
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
	testbed.NotInShort(t)
	namespace := space(t)
	from, content := keepsLarge(t, namespace)
	repository(t, "object-store")
	defer repository(t, "")

	assert.Contains(t, refusedSoon(t, namespace), "there is no Secret "+fabric.System+"/object-store")

	server, err := store.Start(t.Context(), programs.Server, t.TempDir())
	require.NoError(t, err)
	defer server.Stop()
	secrets := bed.Home.Client().CoreV1().Secrets(fabric.System)
	must.Create(t, secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "object-store"}, Data: server.Secret()})
	defer func() {
		_ = secrets.Delete(context.WithoutCancel(t.Context()), "object-store", metav1.DeleteOptions{})
	}()
	would := reaches(t, move(t, namespace, "data", "west", anew, func(m *v1alpha1.VolumeMove) { m.Spec.DryRun = true }), v1alpha1.MoveChecked,
		v1alpha1.MoveFailed)
	assert.Contains(t, would.Status.Message, "through the object store of cluster west")

	requireCarried(t, namespace, from, len(content))
	await.Until(t, "nothing is left in the object store", func() bool {
		files, err := server.Files()
		return err == nil && len(files) == 0
	}, func() any { files, _ := server.Files(); return files })

	// What opens the store is nowhere but where the administrator has put it.
	var holders []string
	for name, cluster := range map[string]*testbed.Cluster{"home": bed.Home, "west": bed.West} {
		all := must.List(t, cluster.Client().CoreV1().Secrets(""))
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

// shared is a driver whose volumes are the same in both clusters.
const shared = "exchange.test"

// shares makes a claim as an administrator does, whose volume is a folder that is the same
// in both clusters.
func shares(t *testing.T, cluster *testbed.Cluster, namespace, name, handle string) *corev1.PersistentVolume {
	t.Helper()
	core, size := cluster.Client().CoreV1(), corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	many, none := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, ""
	volume := must.Create(t, core.PersistentVolumes(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: many, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Namespace: namespace, Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: shared, VolumeHandle: handle}},
		},
	})
	claims := core.PersistentVolumeClaims(namespace)
	must.Create(t, claims, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: many, StorageClassName: &none, VolumeName: volume.Name, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	})
	t.Cleanup(func() {
		_ = claims.Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = core.PersistentVolumes().Delete(context.Background(), volume.Name, metav1.DeleteOptions{})
	})
	await.Until(t, "claim "+namespace+"/"+name+" is bound", func() bool {
		claim := await.Claim(t, cluster.Client(), namespace, name)
		return claim != nil && claim.Status.Phase == corev1.ClaimBound
	})
	return volume
}

// keepsLarge runs an application whose claim data holds a large file, and returns the folder
// of its volume and what is in the file.
func keepsLarge(t *testing.T, namespace string) (from string, content []byte) {
	t.Helper()
	deploys(t, namespace, "data")
	from = folder(t, namespace, "data")
	content = make([]byte, 40<<20)
	_, err := rand.Read(content)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(from, "large"), content, 0o600))
	return from, content
}

func TestContentTravelsThroughAClaimThatBothClustersMount(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	from, content := keepsLarge(t, namespace)
	for _, wrong := range []string{`{}`, `{"claimName":"exchange","secretName":"store"}`, `{"claimName":"../exchange"}`} {
		_, err := bed.Remotes.Patch(t.Context(), "west", types.MergePatchType, []byte(`{"spec":{"moveRepository":`+wrong+`}}`),
			metav1.PatchOptions{})
		require.True(t, apierrors.IsInvalid(err), "%s: %v", wrong, err)
	}
	repositoryIs(t, `{"claimName":"exchange"}`)
	defer repositoryIs(t, "null")

	assert.Contains(t, refusedSoon(t, namespace), "claim "+fabric.Storage+"/exchange in cluster home does not exist")

	volume := shares(t, bed.Home, fabric.Storage, "exchange", "exchange-"+namespace)
	shares(t, bed.West, namespace, "exchange", "exchange-"+namespace)
	exchange, err := bed.Disks.Of(volume)
	require.NoError(t, err)

	requireCarried(t, namespace, from, len(content))
	empty(t, exchange, namespace)

	// A move that is aborted, whose mover was killed, leaves nothing either.
	made := move(t, namespace, "data", keys.Home, anew, limited)
	repositoryNow := func() string {
		found, _ := filepath.Glob(filepath.Join(exchange, "lodestone-moves", "*", namespace, "*", "*", "data", "*", "*"))
		if len(found) == 0 {
			return ""
		}
		return filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(found[0]))))
	}
	var before string
	await.Until(t, "content is in the claim", func() bool { before = repositoryNow(); return before != "" })
	bed.WestPods.Kill(namespace, "move-"+string(made.UID)+"-0-source")
	await.Until(t, "the mover begins anew", func() bool { now := repositoryNow(); return now != "" && now != before })
	act(t, made, v1alpha1.ActionAbort)
	over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
	empty(t, exchange, namespace)
}

// empty waits until movers have left nothing in a claim but the directory of a namespace.
func empty(t *testing.T, exchange, namespace string) {
	t.Helper()
	left := func() []string {
		found, _ := filepath.Glob(filepath.Join(exchange, "lodestone-moves", "*", namespace, "*"))
		return found
	}
	directories, err := filepath.Glob(filepath.Join(exchange, "lodestone-moves", "*", namespace))
	require.NoError(t, err)
	require.Len(t, directories, 1)
	await.Until(t, "nothing is left in the claim", func() bool { return len(left()) == 0 }, func() any { return left() })
}

// TestAReceiverThatDiesWhileItReadsAClaimIsFollowedByAnother: a sender has saved something,
// and the mover at the target ends in the middle of it.
func TestAReceiverThatDiesWhileItReadsAClaimIsFollowedByAnother(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	from, content := keepsLarge(t, namespace)
	exchange, err := bed.Disks.Of(shares(t, bed.Home, fabric.Storage, "exchange", "exchange-"+namespace))
	require.NoError(t, err)
	shares(t, bed.West, namespace, "exchange", "exchange-"+namespace)
	repositoryIs(t, `{"claimName":"exchange"}`)
	defer repositoryIs(t, "null")
	await.Until(t, "the provisioner has heard of the claim", func() bool {
		tried := move(t, namespace, "data", "west", anew, func(m *v1alpha1.VolumeMove) { m.Spec.DryRun = true })
		would := reaches(t, tried, v1alpha1.MoveChecked, v1alpha1.MoveFailed)
		return strings.Contains(would.Status.Message, "through claim")
	})
	// saved are the parts of the repository that a sender has finished.
	saved := func() []string {
		found, _ := filepath.Glob(filepath.Join(exchange, "lodestone-moves", "*", namespace, "*", "*", "snapshots", "*"))
		return found
	}

	made := move(t, namespace, "data", "west", anew, func(m *v1alpha1.VolumeMove) {
		m.Spec.BandwidthLimit = ptr.To(resource.MustParse("8Mi"))
	})
	await.Until(t, "the sender has saved the content", func() bool { return len(saved()) > 0 })
	first := saved()
	bed.WestPods.Kill(namespace, "move-"+string(made.UID)+"-0-target")
	await.Until(t, "the sender saves it again", func() bool {
		now := saved()
		return len(now) > 0 && !slices.Equal(now, first)
	}, func() any { return saved() })
	done := reaches(t, made, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)

	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	claim := done.Status.Claims[0]
	assert.Equal(t, "west", claim.Repository)
	assert.Equal(t, claim.SourceRoot, claim.TargetRoot)
	at := folder(t, namespace, "data")
	assert.NotEqual(t, from, at)
	carried, err := os.ReadFile(filepath.Join(at, "large"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(content, carried), "the content is another")
	counts(t, at, counted(t, at)+10)
	empty(t, exchange, namespace)
}
