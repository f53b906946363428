package replicas

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioners "github.com/lodestone-storage/lodestone/provisioner/app"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	virtualnodes "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// stopHome stops home's programs, and startHome starts them, so that none ends with its lease while home's API server is away.
func stopHome(t *testing.T) {
	t.Helper()
	require.NoError(t, errors.Join(provisioner.Stop(), virtualNode.Stop(), extender.Stop()))
}

func startHome(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	var errs [3]error
	provisioner, errs[0] = bed.StartProvisioner(ctx, func(c *provisioners.Config) { c.LeaderElect = false })
	virtualNode, errs[1] = bed.StartVirtualNode(ctx, func(c *virtualnodes.Config) { c.LeaderElect = false })
	extender, errs[2] = bed.StartExtender(ctx)
	require.NoError(t, errors.Join(errs[:]...))
}

// restoreHome has home go back to a backup. Its history then becomes longer than the one that is lost: until then those that watched that,
// as the nodes and the storage that are played, are told nothing.
func restoreHome(t *testing.T, backup string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	maps := bed.Home.Client().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	lost, err := strconv.Atoi(must.List(t, maps, metav1.ListOptions{Limit: 1}).ResourceVersion)
	require.NoError(t, err)
	require.NoError(t, bed.Home.Restore(ctx, backup))
	var all sync.WaitGroup
	for of := range 8 {
		all.Go(func() {
			made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("history-%d", of)}}
			made, err := maps.Create(ctx, made, metav1.CreateOptions{})
			for now := 0; err == nil && now <= lost; {
				made.Data = map[string]string{"at": made.ResourceVersion}
				if made, err = maps.Update(ctx, made, metav1.UpdateOptions{}); err == nil {
					now, err = strconv.Atoi(made.ResourceVersion)
				}
			}
			assert.NoError(t, err)
		})
	}
	all.Wait()
	drivers[homeDriver].Kill()
	require.NoError(t, drivers[homeDriver].Run(ctx))
}

// inWest is what there is of replicas in a namespace of west, with what versions have.
func inWest(t *testing.T, namespace string) (found []string) {
	t.Helper()
	for _, kind := range []string{"volumesnapshots", "persistentvolumeclaims", "shadowpods.remote.lodestone.dev"} {
		lines := must.Kubectl(t, bed.West, "", "get", kind, "-n", namespace, "-o", `jsonpath={range .items[*]}{.kind} {.metadata.name} `+
			`{.metadata.uid} {.metadata.labels} {.metadata.annotations} {.metadata.deletionTimestamp}{"\n"}{end}`)
		found = append(found, strings.Split(strings.TrimSpace(lines), "\n")...)
	}
	return found
}

// versionsIn are the versions of a replica in west, by name: their UID, and a hash of what they have.
func versionsIn(t *testing.T, made *v1alpha1.VolumeReplica) map[string]string {
	t.Helper()
	found := map[string]string{}
	lines := must.Kubectl(t, bed.West, "", "get", "volumesnapshots", "-n", made.Namespace, "-l", keys.ReplicaOf+"="+string(made.UID), "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.metadata.annotations}{"\n"}{end}`)
	for line := range strings.Lines(lines) {
		name, says, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[name] = says + " " + hashOf(t, contentOf(t, bed.West, westDriver, made.Namespace, name))
	}
	return found
}

// hashOf is a hash of the files of a folder.
func hashOf(t *testing.T, folder string) string {
	t.Helper()
	all := sha256.New()
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(all, "%s %d %x\n", entry.Name(), len(content), sha256.Sum256(content))
		return err
	}))
	return fmt.Sprintf("%x", all.Sum(nil))
}

// TestAHomeThatIsRestoredFromABackupAltersNoVersion restores home to the middle of a point, while a later one is being made.
func TestAHomeThatIsRestoredFromABackupAltersNoVersion(t *testing.T) {
	testbed.NotInShort(t)
	there, here, anew := space(t), space(t), space(t)
	stopHome(t)
	startHome(t)
	counts(t, there, virtual, keys.Home)
	counts(t, here, virtual, "west")
	counts(t, anew, virtual, keys.Home)
	many := func(r *v1alpha1.VolumeReplica) {
		r.Spec.Versions = v1alpha1.ReplicaVersions{Keep: 32, PinAbove: ptr.To(int32(0))}
	}
	away := replicate(t, there, "west", many, func(r *v1alpha1.VolumeReplica) {
		r.Spec.BandwidthLimit = ptr.To(resource.MustParse("4Mi"))
	})
	near := replicate(t, here, keys.Home, many)
	remembered := newestOf(sealed(t, away, time.Time{}))
	sealed(t, near, time.Time{})
	// copying waits until a point writes to the head in west, which takes some seconds.
	copying := func() {
		t.Helper()
		fill(t, folder(t, there))
		until(t, "a point writes in west", away, func(now *v1alpha1.VolumeReplica) bool {
			movers := must.Kubectl(t, bed.West, "", "get", "pods", "-n", there, "-l", keys.MoveOf+"="+string(away.UID), "-o",
				"jsonpath={.items[*].status.phase}")
			return strings.HasSuffix(now.Status.Standbys[0].Point, ": "+string(record.Copy)) && movers == "Running"
		})
	}
	mark := func() homeepoch.Mark {
		id, err := bed.HomeID(t.Context())
		require.NoError(t, err)
		lease := must.Get(t, bed.West.Client().CoordinationV1().Leases(keys.TenantPrefix+id), keys.HeartbeatLease)
		return homeepoch.ParseMark(lease.Annotations[keys.HomeEpoch])
	}
	copying()
	backup, err := bed.Home.Backup(t.Context())
	require.NoError(t, err)

	// What comes now home will not remember.
	before := mark()
	last := sealed(t, away, sealed(t, away, time.Now()).Status.Standbys[0].Sealed.Time).Status.Standbys[0].Sealed.Time
	sealed(t, near, time.Now())
	forgotten := replicate(t, anew, "west", many)
	sealed(t, forgotten, time.Time{})
	await.Until(t, "home has renewed its mark", func() bool { return mark() != before })
	copying()
	stopHome(t)
	restoreHome(t, backup)
	was, versions, of := inWest(t, there), versionsIn(t, away), versionsIn(t, forgotten)
	require.Contains(t, versions, remembered)
	require.Contains(t, strings.Join(was, "\n"), "ShadowPod", "the mover of a point that home does not know is there")
	startHome(t)

	await.Until(t, "home is in doubt", func() bool {
		remote, err := bed.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
		require.NoError(t, err)
		state := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.HomeInForce)
		return state != nil && state.Reason == homeepoch.RemoteAhead
	})
	says(t, away, "ClusterAway", "kubectl lodestone confirm west")
	await.Always(t, "nothing changes at the standby", func() bool { return assert.ObjectsAreEqual(was, inWest(t, there)) })
	assert.Equal(t, versions, versionsIn(t, away))

	confirmed := time.Now()
	code, _, said := plugin(t, "confirm", "west", "--yes")
	require.Zero(t, code, said)
	told(t, there, away.Name, "was restored from a backup while the point was made, so what the copy there has is not known")
	now := sealed(t, away, confirmed)
	assert.Greater(t, now.Status.Standbys[0].Sealed.Time, last)
	_, is := os.Stat(filepath.Join(contentOf(t, bed.West, westDriver, there, newestOf(now)), "much"))
	assert.NoError(t, is)
	assert.Positive(t, counted(t, contentOf(t, bed.West, westDriver, there, newestOf(now))))
	now = pause(t, away)
	kept := versionsIn(t, away)
	for name, says := range versions {
		assert.Equal(t, says, kept[name], "version %s is as it was, whether home remembers it or not", name)
	}
	assert.Contains(t, versionsOf(now), remembered)
	assert.Less(t, len(versionsOf(now)), len(kept), "those that it does not remember are there all the same")
	assert.Empty(t, must.Kubectl(t, bed.West, "", "get", "shadowpods.remote.lodestone.dev", "-n", there, "-o", "name"), "no mover is left")

	// With home as the standby.
	sealed(t, near, confirmed)
	now = pause(t, near)
	assert.Positive(t, counted(t, contentOf(t, bed.Home, homeDriver, fabric.Storage, newestOf(now))))
	await.Until(t, "nothing of points is left at the source", func() bool {
		return must.Kubectl(t, bed.West, "", "get", "shadowpods.remote.lodestone.dev", "-n", here, "-l", keys.MoveOf, "-o", "name") == "" &&
			must.Kubectl(t, bed.West, "", "get", "volumesnapshots,pvc", "-n", here, "-l", keys.ReplicaOf, "-o", "name") == ""
	}, func() any { return left(t, near) })

	// Home knows nothing of this one.
	assert.Empty(t, replicasOf(t, anew))
	again := replicate(t, anew, "west")
	assert.NotEqual(t, forgotten.UID, again.UID)
	sealed(t, again, confirmed)
	assert.Equal(t, of, versionsIn(t, forgotten), "what the one before has sealed stays")
	removes(t, again)
	assert.Equal(t, of, versionsIn(t, forgotten))
	// Its owner removes it, and first the mover that was writing to it.
	must.Kubectl(t, bed.West, "", "delete", "shadowpods.remote.lodestone.dev", "-n", anew, "-l", keys.MoveOf+"="+string(forgotten.UID))
	must.Kubectl(t, bed.West, "", "delete", "volumesnapshots,pvc", "-n", anew, "-l", keys.ReplicaOf+"="+string(forgotten.UID))

	removes(t, away)
	removes(t, near)
}
