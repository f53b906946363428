package csi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/sidecars"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// inGroup gives a claim the label by which groups select.
func inGroup(claim *corev1.PersistentVolumeClaim) { claim.Labels = map[string]string{"app": "db"} }

// createGroup makes claims of the virtual class with the label of groups, each with a pod of its name,
// and waits until these run.
func createGroup(t *testing.T, namespace string, place func(*corev1.Pod) *corev1.Pod, names ...string) {
	t.Helper()
	for _, name := range names {
		claim := fabric.NewClaim(namespace, name, virtual)
		inGroup(claim)
		must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
		bed.CreatePod(t, place(fabric.NewPod(namespace, name, name)))
	}
	for _, name := range names {
		bed.AwaitRunning(t, namespace, name)
	}
}

// askGroup asks for a snapshot of all claims with the label of groups.
func askGroup(t *testing.T, namespace, name, class string) {
	t.Helper()
	must.Kubectl(t, bed.Home, fmt.Sprintf(`
apiVersion: groupsnapshot.storage.k8s.io/v1beta2
kind: VolumeGroupSnapshot
metadata: {name: %s, namespace: %s}
spec:
  volumeGroupSnapshotClassName: %s
  source: {selector: {matchLabels: {app: db}}}
`, name, namespace, class), "apply", "-f", "-")
	t.Cleanup(func() {
		_, _ = bed.Home.Kubectl(context.Background(), "", "delete", "volumegroupsnapshot", "-n", namespace, name, "--ignore-not-found",
			"--timeout=20s")
	})
}

// awaitGroup waits until a snapshot of several volumes can be used, and returns the snapshot that it
// has of each volume handle of home.
func awaitGroup(t *testing.T, namespace, name string) map[string]string {
	t.Helper()
	ready := "{.status.readyToUse}"
	await.Until(t, "the group snapshot is ready", func() bool {
		return field(t, bed.Home, "volumegroupsnapshot", namespace, name, ready) == "true"
	}, func() any {
		return field(t, bed.Home, "volumegroupsnapshotcontents", namespace, "", "{range .items[*]}{.spec} {.status}{'\\n'}{end}")
	}, func() any {
		return field(t, bed.West, "volumegroupsnapshots", namespace, "", "{range .items[*]}{.spec} {.status}{'\\n'}{end}")
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	members := map[string]string{}
	await.Until(t, "each member is ready", func() bool {
		clear(members)
		all := true
		for _, member := range strings.Fields(field(t, bed.Home, "volumesnapshots", namespace, "", "{.items[*].metadata.name}")) {
			all = all && field(t, bed.Home, "volumesnapshot", namespace, member, ready) == "true"
			content := field(t, bed.Home, "volumesnapshot", namespace, member, "{.status.boundVolumeSnapshotContentName}")
			if content != "" {
				members[field(t, bed.Home, "volumesnapshotcontent", "", content, "{.spec.source.volumeHandle}")] = member
			}
		}
		return all && len(members) > 0
	}, func() any {
		return field(t, bed.Home, "volumesnapshotcontents", "", "", "{range .items[*]}{.spec} {.status}{'\\n'}{end}")
	})
	return members
}

// groupsOf returns the groups, of several, that a driver has snapshots of these volumes in.
func groupsOf(t *testing.T, driver *sidecars.Driver, volumes ...string) map[string][]sidecars.Snapshot {
	t.Helper()
	found, err := driver.Snapshots()
	require.NoError(t, err)
	groups := map[string][]sidecars.Snapshot{}
	for _, s := range found {
		if slices.Contains(volumes, s.Source) {
			groups[s.Group] = append(groups[s.Group], s)
		}
	}
	return groups
}

// TestSeveralVolumesAreTakenAtOneMomentAndRestored takes one group snapshot of two claims, restores
// both after their sources have changed, and removes all there is.
func TestSeveralVolumesAreTakenAtOneMomentAndRestored(t *testing.T) {
	for i, class := range []string{"together-here", "together-there"} {
		r := routes[i]
		t.Run(r.name, func(t *testing.T) {
			namespace := beside(t)
			createGroup(t, namespace, r.place, "first", "second")
			sources := []chain{chainOf(t, namespace, "first", r.driver()), chainOf(t, namespace, "second", r.driver())}
			for _, source := range sources {
				write(t, r.driver(), source.volume.ID)
			}
			askGroup(t, namespace, "kept", class)
			members := awaitGroup(t, namespace, "kept")
			require.Len(t, members, 2)
			groups := groupsOf(t, r.driver(), sources[0].volume.ID, sources[1].volume.ID)
			require.Len(t, groups, 1, "one group, and nothing was taken by itself")
			for group, taken := range groups {
				assert.NotEmpty(t, group)
				require.Len(t, taken, 2)
				assert.Equal(t, taken[0].Created, taken[1].Created, "the same moment")
			}
			for _, source := range sources {
				left := claimOf(t, r.cluster(), source.backing.Namespace, source.backing.Name)
				for label := range left.Labels {
					assert.NotContains(t, label, keys.GroupPrefix, "the label has served")
				}
			}

			// The driver copies only on the node of a snapshot. kube-scheduler knows nothing of that, and where pods run on this node, it
			// might choose the other one for ever.
			endPod := func(name string) {
				t.Helper()
				must.Delete(t, bed.Home.Client().CoreV1().Pods(namespace), name)
			}
			for _, source := range sources {
				endPod(source.claim.Name)
			}
			for _, source := range sources {
				name := "restored-" + source.claim.Name
				restore(t, namespace, name, members[source.virtual.Spec.CSI.VolumeHandle])
				bed.AwaitRunning(t, namespace, name)
				c := chainOf(t, namespace, name, r.driver())
				assert.Equal(t, text, read(t, r.driver(), c.volume.ID))
				endPod(name)
			}

			must.Kubectl(t, bed.Home, "", "delete", "volumegroupsnapshot", "-n", namespace, "kept", "--timeout=30s")
			await.Until(t, "the driver has no snapshot any more", func() bool {
				return len(groupsOf(t, r.driver(), sources[0].volume.ID, sources[1].volume.ID)) == 0
			})
			assert.Empty(t, field(t, bed.West, "volumegroupsnapshots", namespace, "", "{.items[*].metadata.name}"))
			await.Until(t, "no snapshot is left", func() bool {
				return field(t, bed.West, "volumesnapshots", namespace, "", "{.items[*].metadata.name}")+
					field(t, bed.Home, "volumesnapshots", namespace, "", "{.items[*].metadata.name}") == ""
			})
		})
	}
}

// TestVolumesOfSeveralClustersAreNotTakenTogether is about a group with claims at home and in west: no
// moment is the same in both.
func TestVolumesOfSeveralClustersAreNotTakenTogether(t *testing.T) {
	testbed.NotInShort(t)
	namespace := beside(t)
	createGroup(t, namespace, fabric.AtHome, "here")
	createGroup(t, namespace, fabric.InWest, "there")
	askGroup(t, namespace, "kept", "together-there")
	why := await.Event(t, bed.Home.Client(), namespace, "kept", "GroupInSeveralClusters")
	assert.Contains(t, why, "the home cluster of here, cluster west of there")
	assert.Contains(t, why, "make a VolumeGroupSnapshot for the claims of each")
	assert.NotEqual(t, "true", field(t, bed.Home, "volumegroupsnapshot", namespace, "kept", "{.status.readyToUse}"))
	assert.Empty(t, field(t, bed.West, "volumegroupsnapshots", namespace, "", "{.items[*].metadata.name}"))
}
