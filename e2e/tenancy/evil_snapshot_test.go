package tenancy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// contents are what the snapshot controller of home made: that of a snapshot in a hostile
// cluster, %[1]s, of the claim of namespace %[2]s, and those of another tenant, %[3]s, in
// west and at home.
const contents = `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: %[2]s-evil, finalizers: [snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection]}
spec:
  driver: lodestone.dev
  deletionPolicy: Delete
  source: {volumeHandle: %[1]s/%[2]s/data/shadow}
  volumeSnapshotRef: {namespace: %[2]s, name: mine, uid: 11111111-1111-1111-1111-111111111111}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: %[3]s-west}
spec:
  driver: lodestone.dev
  deletionPolicy: Delete
  source: {snapshotHandle: west/%[3]s/kept/22222222-2222-2222-2222-222222222222}
  volumeSnapshotRef: {namespace: %[3]s, name: west}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: %[3]s-home}
spec:
  driver: disk.home.test
  deletionPolicy: Delete
  source: {snapshotHandle: disk-1}
  volumeSnapshotRef: {namespace: %[3]s, name: home, uid: 33333333-3333-3333-3333-333333333333}
`

// TestAHostileClusterReachesNothingWithSnapshots has a hostile cluster say of the snapshots
// there all that could reach something of home, or of another cluster, if it were believed.
func TestAHostileClusterReachesNothingWithSnapshots(t *testing.T) {
	user, victim := newTenant(t), newTenant(t)
	claim := user.claim("data", nil)
	const id = "evil-snapshots"
	there, _ := inEvil(t, user, claim, id)
	mine, west, home := user.namespace+"-evil", victim.namespace+"-west", victim.namespace+"-home"
	_, err := bed.Home.Kubectl(t.Context(), fmt.Sprintf(contents, id, user.namespace, victim.namespace), "apply", "-f", "-")
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		_, _ = bed.Home.Kubectl(ctx, "", "patch", "volumesnapshotcontent", mine, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		_, _ = bed.Home.Kubectl(ctx, "", "delete", "volumesnapshotcontent", mine, west, home, "--ignore-not-found", "--wait=false")
	})
	await.Until(t, "what is in west is looked for", func() bool {
		return strings.Contains(snapshotContent(t, west, "{.status.error.message}"), "has no VolumeSnapshots")
	},
		func() any { return snapshotContent(t, west, "{.status}") })
	before := map[string]string{}
	for _, name := range []string{west, home} {
		before[name] = snapshotContent(t, name, "{.metadata.resourceVersion}")
	}

	uid := snapshotContent(t, mine, "{.metadata.uid}")
	lied, shown := lies(t, claim), snapshotLies(t, user.namespace, victim.namespace, uid, snapshotContent(t, home, "{.metadata.uid}"), home)
	there.says(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet && strings.Contains(r.URL.Path, "volumesnapshots"):
			// It says of each request that it did something else.
			object(w, `{"kind":"VolumeSnapshot","apiVersion":"snapshot.storage.k8s.io/v1","metadata":{"namespace":"kube-system","name":"x","uid":"x"}}`)
		case kindOf(r) == "VolumeSnapshot" && r.URL.Query().Get("watch") != "":
			// Whatever home has seen before.
			for _, text := range shown {
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, typed(text, kindOf(r), groupOf(r)))
			}
			lists(func(string) []string { return nil })(w, r)
		case kindOf(r) == "VolumeSnapshot":
			lists(func(string) []string { return shown })(w, r)
		default:
			telling(lied)(w, r)
		}
	})
	there.CloseClientConnections()
	handle := id + "/" + user.namespace + "/snapshot-" + uid + "/5a"
	await.Until(t, "the snapshot has its handle", func() bool { return snapshotContent(t, mine, "{.status.snapshotHandle}") == handle },
		func() any { return snapshotContent(t, mine, "{.status}") })
	message := snapshotContent(t, mine, "{.status.error.message}")
	assert.Less(t, len(message), 2048)
	assert.Empty(t, snapshotContent(t, mine, "{.status.restoreSize}"), "no size is that")

	// It is deleted, and the cluster says for ever that it is still there.
	_, err = bed.Home.Kubectl(t.Context(), "", "annotate", "volumesnapshotcontent", mine, "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted=yes")
	require.NoError(t, err)
	_, err = bed.Home.Kubectl(t.Context(), "", "delete", "volumesnapshotcontent", mine, "--wait=false")
	require.NoError(t, err)
	time.Sleep(await.Often)
	for name, version := range before {
		assert.Equal(t, version, snapshotContent(t, name, "{.metadata.resourceVersion}"), "nobody wrote or deleted %s", name)
	}
	assert.Contains(t, snapshotContent(t, mine, "{.metadata.finalizers}"), "bound-protection")
	remains(t)
}

// snapshotLies are snapshots that a hostile cluster shows in a namespace: the one of a
// content with that UID, and others of other names and namespaces.
func snapshotLies(t *testing.T, namespace, other, uid, otherUID, content string) []string {
	t.Helper()
	id := homeID(t)
	show := func(namespace, name, uid, label, content, status string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":"9","labels":{%q:%q,%q:%q},"annotations":{%q:%q,%q:"disk.home.test"}},
			"spec":{"source":{"persistentVolumeClaimName":"data"}},"status":%s}`,
			namespace, name, uid, keys.HomeID, id, keys.ContentUID, label, keys.Content, content, keys.MadeBy, status)
	}
	ready := `{"readyToUse":true,"boundVolumeSnapshotContentName":"x","restoreSize":"1Gi"}`
	huge := strings.Repeat("x", 1<<20)
	return []string{
		show(namespace, "snapshot-"+uid, "5a", uid, "anything", `{"readyToUse":false,"restoreSize":"-1Gi","error":{"message":"`+huge+`"}}`),
		show(namespace, "snapshot-"+otherUID, "5b", otherUID, content, ready),
		show(other, "snapshot-"+otherUID, "5c", otherUID, content, ready),
		show(other, "kept", "22222222-2222-2222-2222-222222222222", otherUID, content, ready),
		show(namespace, "path", "../../../x", uid, "../../../api/v1/namespaces/lodestone-system/secrets/west", ready),
		show(namespace, "long", "5d", uid, "x", `{"readyToUse":true,"boundVolumeSnapshotContentName":"`+huge+`"}`),
	}
}

// snapshotContent returns a field of a content of home.
func snapshotContent(t *testing.T, name, path string) string {
	t.Helper()
	value, err := bed.Home.Kubectl(context.WithoutCancel(t.Context()), "", "get", "volumesnapshotcontent", name, "-o", "jsonpath="+path, "--ignore-not-found")
	require.NoError(t, err)
	return value
}
