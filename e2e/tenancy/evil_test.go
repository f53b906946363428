package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/untrusted"
)

// evil is an API server that answers as its owner wants. It says that it is
// a cluster of its own, that home may do all, and for the rest what answer writes.
type evil struct {
	*httptest.Server
	id     string
	answer atomic.Pointer[http.HandlerFunc]
	// asked are the requests that answer was given, longest are the bytes of the longest
	// answer to one that was no watch.
	asked, longest atomic.Int64
	// sick: it fails where home looks how it is.
	sick atomic.Bool
}

func newEvil(t *testing.T, id string, answer http.HandlerFunc) *evil {
	t.Helper()
	e := &evil{id: id}
	e.says(answer)
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &counted{ResponseWriter: w}
		if r.URL.Query().Get("watch") == "" {
			answer.longest = &e.longest
		}
		w = answer
		switch {
		case e.sick.Load() && (r.URL.Path == "/version" || strings.HasSuffix(r.URL.Path, "/kube-system")):
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/api/v1/namespaces/kube-system":
			object(w, fmt.Sprintf(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q}}`, id))
		case r.URL.Path == "/version":
			object(w, `{"gitVersion":"v1.36.3"}`)
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			body, _ := io.ReadAll(r.Body)
			object(w, fmt.Sprintf(`{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`,
				!strings.Contains(string(body), "namespacerequests")))
		default:
			e.asked.Add(1)
			(*e.answer.Load())(w, r)
		}
	}))
	// Home may ask again at any moment: watches end with the server, or it would wait for them.
	ctx, stop := context.WithCancel(context.Background())
	e.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	e.Start()
	t.Cleanup(func() {
		stop()
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

func (e *evil) says(answer http.HandlerFunc) { e.answer.Store(&answer) }

// kubeconfig is one that leads there.
func (e *evil) kubeconfig(t *testing.T) []byte {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"evil": {Server: e.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"home": {Token: "token"}},
		Contexts:       map[string]*clientcmdapi.Context{"evil": {Cluster: "evil", AuthInfo: "home"}},
		CurrentContext: "evil",
	})
	require.NoError(t, err)
	return data
}

// counted sends what is written at once, and says how long the longest answer is.
type counted struct {
	http.ResponseWriter
	sent int64
	// longest, if not nil, is raised to the bytes of this answer.
	longest *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.sent += int64(n)
	for most := int64(0); c.longest != nil && c.sent > most; {
		if most = c.longest.Load(); c.sent > most && c.longest.CompareAndSwap(most, c.sent) {
			break
		}
	}
	if flusher, ok := c.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
	return n, err
}

func object(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
}

// kindOf is the kind of what a request asks for.
func kindOf(r *http.Request) string {
	switch parts := strings.Split(r.URL.Path, "/"); parts[len(parts)-1] {
	case "persistentvolumeclaims":
		return "PersistentVolumeClaim"
	case "storageclasses":
		return "StorageClass"
	case "csistoragecapacities":
		return "CSIStorageCapacity"
	case "nodes":
		return "Node"
	case "volumesnapshots":
		return "VolumeSnapshot"
	case "volumesnapshotcontents":
		return "VolumeSnapshotContent"
	}
	return "PersistentVolume"
}

// groupOf is the API group and version of what a request asks for.
func groupOf(r *http.Request) string {
	if strings.Contains(r.URL.Path, "snapshot.storage.k8s.io") {
		return "snapshot.storage.k8s.io/v1"
	}
	if strings.Contains(r.URL.Path, "storage.k8s.io") {
		return "storage.k8s.io/v1"
	}
	return "v1"
}

// lists answers lists and watches with these objects, and nothing after.
func lists(objects func(kind string) []string) http.HandlerFunc { return follows(objects, nil) }

// follows answers lists and watches with these objects, and a watch then with more,
// unless that is nil.
func follows(objects func(kind string) []string, more http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		kind, group := kindOf(r), groupOf(r)
		query := r.URL.Query()
		if query.Get("watch") == "" {
			object(w, fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"10"},"items":[%s]}`, kind, group,
				strings.Join(objects(kind), ",")))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if query.Get("sendInitialEvents") == "true" {
			for _, text := range objects(kind) {
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, typed(text, kind, group))
			}
			_, _ = fmt.Fprintf(w,
				`{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"10","annotations":{"k8s.io/initial-events-end":"true"}}}}`, kind, group)
		}
		if more != nil {
			more(w, r)
		}
		<-r.Context().Done()
	}
}

// withoutEnd brings objects of the kind that is watched, as many as are read, with names as long as they may be.
func withoutEnd(w http.ResponseWriter, r *http.Request) {
	kind, group := kindOf(r), groupOf(r)
	name := strings.Repeat("n", 240)
	for n := 0; r.Context().Err() == nil; {
		var many strings.Builder
		for range 100 {
			n++
			_, _ = fmt.Fprintf(&many,
				`{"type":"ADDED","object":{"kind":%q,"apiVersion":%q,"metadata":{"namespace":"none","name":"%s%d","uid":"n%d","resourceVersion":"%d"}}}`,
				kind, group, name, n, n, 10+n)
		}
		if _, err := io.WriteString(w, many.String()); err != nil {
			return
		}
	}
}

// typed is an object with its kind, as watches bring it.
func typed(text, kind, group string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil {
		return text
	}
	fields["kind"], fields["apiVersion"] = kind, group
	data, err := json.Marshal(fields)
	if err != nil {
		return text
	}
	return string(data)
}

// TestAHostileClusterCannotHoldUpHome has a RemoteCluster lead to an API server
// that answers anything, and looks whether claims of home go on meanwhile, and that
// home holds and reads no more than it should and goes nowhere else.
func TestAHostileClusterCannotHoldUpHome(t *testing.T) {
	user := newTenant(t)
	var trapped atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	t.Cleanup(trap.Close)
	junk := strings.Repeat(`{"metadata":{"name":"x","uid":"x","annotations":{"x":"`+strings.Repeat("x", 1<<16)+`"}}},`, 16)
	nothing := strings.Repeat(`{},`, 1<<21)
	for name, answer := range map[string]http.HandlerFunc{
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, trap.URL+r.URL.Path, http.StatusTemporaryRedirect)
		},
		"garbage": func(w http.ResponseWriter, _ *http.Request) {
			object(w, "\x00\xff}{<html>"+strings.Repeat("[", 100_000))
		},
		"yaml": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = w.Write([]byte("a: &a [x, x]\nb: &b [*a, *a]\n"))
		},
		"other kinds": func(w http.ResponseWriter, _ *http.Request) {
			object(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"x"}}]}`)
		},
		"endless answers": func(w http.ResponseWriter, r *http.Request) {
			object(w, `{"kind":"List","items":[`)
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(junk)); err != nil {
					return
				}
			}
		},
		"endless failures": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			for r.Context().Err() == nil {
				if _, err := w.Write([]byte(junk)); err != nil {
					return
				}
			}
		},
		"endless pages": func(w http.ResponseWriter, _ *http.Request) {
			object(w, `{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"continue":"more","resourceVersion":"1"},"items":[`+
				strings.TrimSuffix(junk, ",")+`]}`)
		},
		"sizes that take for ever": lists(func(string) []string {
			return []string{
				`{"metadata":{"name":"x","uid":"x"},"spec":{"capacity":{"storage":"1e1000000000"}},"capacity":"1234567890123456789012e1000000000","provisioner":"x"}`,
			}
		}),
		"lists of nothing": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") != "" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			object(w, `{"kind":"`+kindOf(r)+`List","apiVersion":"`+groupOf(r)+`","metadata":{"resourceVersion":"1"},"items":[`+nothing+`{}]}`)
		},
		"one byte at a time": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				object(w, " ")
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := "evil-" + strings.ReplaceAll(name, " ", "-")
			there := newEvil(t, claim, answer)
			register(t, there)
			await.Until(t, "home asks", func() bool { return there.asked.Load() > 2 })
			user.claim(claim, nil)
			user.pod(fabric.AtHome(fabric.NewPod(user.namespace, claim, claim)))
			user.bound(claim)
			await.Never(t, "home must not follow", func() bool { return trapped.Load() > 0 })
			const underWay = 16 << 20 // when home has enough of an answer
			assert.Less(t, there.longest.Load(), int64(untrusted.MaxAnswer+underWay))
			remains(t)
		})
	}
}

// TestAHostileClusterThatTellsWithoutEndIsNotListenedTo: its watches never cease to
// bring objects of which nothing but the names can be kept, and where home looks how
// it is, it fails.
func TestAHostileClusterThatTellsWithoutEndIsNotListenedTo(t *testing.T) {
	user := newTenant(t)
	there := newEvil(t, "evil-endless", follows(func(string) []string { return nil }, withoutEnd))
	register(t, there)
	require.NoError(t, bed.AwaitReady(t.Context(), there.id, metav1.ConditionTrue))
	there.sick.Store(true)
	user.claim("data", nil)
	user.pod(fabric.AtHome(fabric.NewPod(user.namespace, "data", "data")))
	user.bound("data")
	var ready *metav1.Condition
	await.Until(t, "home has enough", func() bool {
		remote := must.Get(t, bed.Remotes, there.id)
		ready = meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
		return ready.Reason == "TooMuch"
	}, func() any { return ready })
	remains(t)
}

// remains says whether the provisioner would still run in a container with the limit
// that it has in deploy/base. It is the most memory that it ever had that counts: how
// long the attack took, and how often, does not. What is no more in use does not
// count either, for the garbage collector knows the limit.
func remains(t *testing.T) {
	t.Helper()
	require.True(t, provisioner.Running())
	if runtime.GOOS != "linux" {
		return // no other system tells
	}
	most, err := measure.MostResident(provisioner.Pid())
	require.NoError(t, err)
	t.Logf("the provisioner took %.0f MB at most", most)
	assert.Less(t, most, float64(memoryLimit)/1e6)
}

// register makes a RemoteCluster that leads to a hostile API server.
func register(t *testing.T, there *evil) {
	t.Helper()
	require.NoError(t, bed.Register(t.Context(), there.id, there.kubeconfig(t)))
	t.Cleanup(func() {
		there.says(lists(func(string) []string { return nil }))
		there.CloseClientConnections()
		ctx := context.WithoutCancel(t.Context())
		_, err := bed.Home.Kubectl(ctx, "", "delete", "remotecluster", there.id, "--wait=false")
		require.NoError(t, err)
	})
}

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
	must.Kubectl(t, bed.Home, fmt.Sprintf(contents, id, user.namespace, victim.namespace), "apply", "-f", "-")
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
			object(w,
				`{"kind":"VolumeSnapshot","apiVersion":"snapshot.storage.k8s.io/v1","metadata":{"namespace":"kube-system","name":"x","uid":"x"}}`)
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
	must.Kubectl(t, bed.Home, "", "annotate", "volumesnapshotcontent", mine, "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted=yes")
	must.Kubectl(t, bed.Home, "", "delete", "volumesnapshotcontent", mine, "--wait=false")
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
	value, err := bed.Home.Kubectl(context.WithoutCancel(t.Context()), "", "get", "volumesnapshotcontent", name, "-o", "jsonpath="+path,
		"--ignore-not-found")
	require.NoError(t, err)
	return value
}

// TestAHostileClusterPutsNothingIntoAVolume has a hostile cluster make a volume, and
// say of it all that could reach something of home if it were believed.
func TestAHostileClusterPutsNothingIntoAVolume(t *testing.T) {
	user := newTenant(t)
	claim := user.claim("data", nil)
	_, volume := inEvil(t, user, claim, "evil")

	ref := "evil/" + user.namespace + "/data/shadow"
	assert.Equal(t, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: keys.Driver, VolumeHandle: ref}}, volume.Spec.PersistentVolumeSource)
	assert.Empty(t, volume.Spec.MountOptions)
	assert.Equal(t, map[string]string{keys.Cluster: "evil"}, volume.Labels)
	assert.Equal(t, ref, volume.Annotations[keys.Backing])
	require.Len(t, volume.Spec.NodeAffinity.Required.NodeSelectorTerms, 1)
	for _, e := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions {
		assert.Equal(t, keys.Cluster, e.Key)
		assert.Equal(t, []string{"evil"}, e.Values)
	}
	assert.Equal(t, "pvc-"+string(claim.UID), volume.Name)
	assert.Equal(t, claim.UID, volume.Spec.ClaimRef.UID)
	assert.Equal(t, fabric.Class, volume.Spec.StorageClassName)
}

// inEvil has a hostile cluster make the volume of claim "data".
func inEvil(t *testing.T, user tenant, claim *corev1.PersistentVolumeClaim, id string) (*evil, *corev1.PersistentVolume) {
	t.Helper()
	there := newEvil(t, id, telling(lies(t, claim)))
	must.Create(t, bed.Home.Client().CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: id + "-1", Labels: map[string]string{keys.Cluster: id}}})
	t.Cleanup(func() {
		_ = bed.Home.Client().CoreV1().Nodes().Delete(context.Background(), id+"-1", metav1.DeleteOptions{})
	})
	register(t, there)
	require.NoError(t, bed.AwaitReady(t.Context(), id, metav1.ConditionTrue))

	// Only now is the node chosen: of a cluster that is not known the choice would be taken back.
	must.Patch(t, user.home.CoreV1().PersistentVolumeClaims(user.namespace), "data", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q}}}`, keys.SelectedNode, id+"-1", keys.Routed, id))
	_, volume := user.bound("data")
	letGo(t, volume.Name)
	return there, volume
}

// telling answers with these objects, by kind.
func telling(objects map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/persistentvolumeclaims/data") {
			object(w, typed(objects["PersistentVolumeClaim"], "PersistentVolumeClaim", "v1"))
			return
		}
		lists(func(kind string) []string {
			if text, ok := objects[kind]; ok {
				return []string{text}
			}
			return nil
		})(w, r)
	}
}

// lies are the objects, by kind, that a hostile cluster shows for a claim: a shadow
// as home would have made it, and a volume that points at all sorts of things.
func lies(t *testing.T, claim *corev1.PersistentVolumeClaim) map[string]string {
	t.Helper()
	return map[string]string{
		"StorageClass": `{"metadata":{"name":"fast","uid":"c","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"disk.evil.test","volumeBindingMode":"Immediate"}`,
		"PersistentVolumeClaim": fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"data","uid":"shadow","resourceVersion":"9","labels":{%q:%q,%q:%q},
			"annotations":{%q:%q,%q:"true"},"finalizers":[%q]},
			"spec":{"volumeName":"real","storageClassName":"fast","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}},
			"status":{"phase":"Bound","accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"}}}`,
			claim.Namespace, keys.ClaimUID, claim.UID, keys.HomeID, homeID(t), keys.Claim, claim.Namespace+"/"+claim.Name, keys.Unpublished,
			keys.BackingFinalizer),
		"PersistentVolume": fmt.Sprintf(`{"metadata":{"name":"real","uid":"real","labels":{"a":"b"},"annotations":{%q:"home/lodestone-storage/x/y"}},
			"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],
			"hostPath":{"path":"/etc"},"local":{"path":"/"},"mountOptions":["suid"],"storageClassName":"home-now",
			"persistentVolumeReclaimPolicy":"Delete",
			"csi":{"driver":"disk.home.test","volumeHandle":"another","nodePublishSecretRef":{"namespace":"kube-system","name":"token"}},
			"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":
				[{"key":"kubernetes.io/hostname","operator":"In","values":["home-1"]}]}]}},
			"claimRef":{"namespace":%q,"name":"data","uid":"shadow"}},"status":{"phase":"Bound"}}`, keys.Backing, claim.Namespace),
	}
}

// letGo takes a volume away at the end, as its administrator would: a hostile cluster
// never ends what it is asked to delete.
func letGo(t *testing.T, volume string) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := bed.Home.Kubectl(ctx, "", "patch", "pv", volume, "--type=merge", "-p",
			`{"metadata":{"finalizers":null},"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
		require.NoError(t, err)
		require.NoError(t, bed.Home.Client().CoreV1().PersistentVolumes().Delete(ctx, volume, metav1.DeleteOptions{}))
	})
}
