package untrusted

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func weigh(text string, typed bool) int64 {
	s := &scale{typed: typed}
	for _, c := range []byte(text) { // whatever comes at once
		s.add([]byte{c})
	}
	whole := &scale{typed: typed}
	whole.add([]byte(text))
	if *s != *whole {
		return -1
	}
	return s.weight
}

func TestTheScale(t *testing.T) {
	const n = 1000
	for name, row := range map[string]struct {
		text  string
		typed bool
		least int64
		most  int64
	}{
		"counts items of a list": {text: `{"items":[` + strings.Repeat(`{},`, n) + `{}]}`, least: n * perItem,
			most: n*(perItem+perValue+3) + 4096},
		"counts what is within an item": {text: `{"metadata":{"ownerReferences":[` + strings.Repeat(`{},`, n) + `{}]}}`,
			least: n * 2 * perValue, most: n*(2*perValue+3) + 4096},
		"counts words": {text: `{"finalizers":["` + strings.Repeat(`","`, n) + `"]}`, least: n * perValue,
			most: n*(perValue+3) + 4096},
		"counts entries": {text: `{"capacity":{` + strings.Repeat(`"a":1,`, n) + `"b":1}}`, least: n * perValue,
			most: n*(perValue+6) + 4096},
		"counts no text twice": {text: `{"a":"` + strings.Repeat(`{\",[`, n) + `"}`, least: 5 * n, most: 5*n + 2048},
		"leaves out who manages fields": {text: `{"managedFields":[{"fieldsV1":{` + strings.Repeat(`"f:a":{},`, n) + `"b":{}}}]}`,
			typed: true, least: 9 * n, most: 9*n + 4096},
		"but not in custom resources": {text: `{"managedFields":[{"fieldsV1":{` + strings.Repeat(`"f:a":{},`, n) + `"b":{}}}]}`,
			least: 2 * n * perValue, most: n*(2*perValue+9) + 4096},
		"nor what comes after it": {text: `{"fieldsV1":{},"items":[` + strings.Repeat(`{},`, n) + `{}]}`, typed: true,
			least: n * perItem, most: n*(perItem+perValue+3) + 4096},
		"nor a word of that name": {text: `{"items":["fieldsV1",{"a":[` + strings.Repeat(`"",`, n) + `""]}]}`, typed: true,
			least: n * perValue, most: n*(perValue+3) + 4096},
		"nor a longer key": {text: `{"fieldsV1x":{` + strings.Repeat(`"a":1,`, n) + `"b":1}}`, typed: true,
			least: n * perValue, most: n*(perValue+6) + 4096},
		"counts each object of a watch":            {text: strings.Repeat(`{}`, n), least: n * perItem, most: n*(perItem+2) + 1024},
		"does not fail on what begins with an end": {text: `]]]}` + strings.Repeat(`{}`, n), least: n * perItem, most: n*(perItem+2) + 1024},
	} {
		t.Run(name, func(t *testing.T) {
			weight := weigh(row.text, row.typed)
			assert.GreaterOrEqual(t, weight, row.least)
			assert.LessOrEqual(t, weight, row.most)
		})
	}
}

// TestTheScaleIsNotFarFromTheTruth decodes what takes much more memory than it has
// bytes.
func TestTheScaleIsNotFarFromTheTruth(t *testing.T) {
	const n = 100_000
	var entries, entry []string
	for i := range n {
		entries = append(entries, fmt.Sprintf(`"%d":1`, i))
		entry = append(entry, fmt.Sprintf(`"%d":""`, i))
	}
	for name, text := range map[string]string{
		"claims":  `{"items":[` + strings.Repeat(`{},`, n) + `{}]}`,
		"owners":  `{"items":[{"metadata":{"ownerReferences":[` + strings.Repeat(`{},`, n) + `{}]}}]}`,
		"sizes":   `{"items":[{"status":{"capacity":{` + strings.Join(entries, ",") + `}}}]}`,
		"labels":  `{"items":[{"metadata":{"labels":{` + strings.Join(entry, ",") + `}}}]}`,
		"modes":   `{"items":[{"spec":{"accessModes":["` + strings.Repeat(`","`, n) + `"]}}]}`,
		"reports": `{"items":[{"status":{"conditions":[` + strings.Repeat(`{},`, n) + `{}]}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			var claims corev1.PersistentVolumeClaimList
			require.NoError(t, json.Unmarshal([]byte(text), &claims))
			held := heap() - before
			runtime.KeepAlive(claims)
			runtime.KeepAlive(text)
			assert.Less(t, held, 2*weigh(text, true))
		})
	}
}

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// allocated returns how many bytes were ever taken from the heap.
func allocated() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.TotalAlloc)
}

func TestAListOfNothingIsNotDecoded(t *testing.T) {
	text := `{"kind":"PersistentVolumeClaimList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` +
		strings.Repeat(`{},`, 4<<20/3) + `{}]}`
	c := client(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, text) })
	before := allocated()
	_, err := c.CoreV1().PersistentVolumeClaims("").List(t.Context(), metav1.ListOptions{})
	require.ErrorIs(t, err, ErrTooLarge)
	assert.Less(t, allocated()-before, int64(64<<20))
}

func TestListsAreReadInPages(t *testing.T) {
	for query, want := range map[string]string{
		"resourceVersion=0&limit=500":                          "limit=500",
		"resourceVersion=77&resourceVersionMatch=NotOlderThan": "limit=500",
		"continue=more":                 "continue=more&limit=500",
		"labelSelector=a":               "labelSelector=a",
		"limit=1":                       "limit=1",
		"resourceVersion=77&watch=true": "resourceVersion=77&watch=true",
		"resourceVersion=77&labelSelector=a%3Db&resourceVersionMatch": "labelSelector=a%3Db&limit=500",
	} {
		request := httptest.NewRequest(http.MethodGet, "/api/v1/persistentvolumes?"+query, nil)
		assert.Equal(t, want, paged(request).URL.RawQuery, query)
		assert.Equal(t, query, request.URL.RawQuery, "a transport must not change requests")
	}
}

func ask(t *testing.T, l *ledger, path string) (*list, error) {
	t.Helper()
	return l.begin(httptest.NewRequest(http.MethodGet, path, nil))
}

func TestAllListsThatAreBeingReadCountTogether(t *testing.T) {
	now := time.Now()
	l := newLedger(bounds{list: 100, lists: 150})
	l.now = func() time.Time { return now }
	one, err := ask(t, l, "/one?limit=5")
	require.NoError(t, err)
	two, err := ask(t, l, "/two?limit=5")
	require.NoError(t, err)
	require.NoError(t, l.charge(one, 90))
	require.NoError(t, l.charge(two, 60))
	require.ErrorIs(t, l.charge(two, 1), ErrTooLarge, "together")
	l.end(one)
	l.end(two)
	same, err := ask(t, l, "/one?limit=5&continue=more")
	require.NoError(t, err)
	assert.Same(t, one, same)
	require.ErrorIs(t, l.charge(same, 11), ErrTooLarge, "the pages of one")
	l.end(same)
	now = now.Add(pause + 1)
	_, err = ask(t, l, "/one?limit=5&continue=more")
	require.ErrorIs(t, err, errPaused, "or what was read before would not count")
	three, err := ask(t, l, "/three?limit=5")
	require.NoError(t, err)
	assert.NoError(t, l.charge(three, 100), "what was read is not being read")
	none, err := ask(t, l, "/one")
	require.NoError(t, err)
	assert.Nil(t, none)
}

func TestWatchesEndThatBringTooMuch(t *testing.T) {
	open := func(l *ledger, query, text string) io.ReadCloser {
		request := httptest.NewRequest(http.MethodGet, "/api/v1/nodes?watch=true&"+query, nil)
		of, err := l.begin(request)
		require.NoError(t, err)
		closer := io.NopCloser(nil)
		if of != nil {
			closer = body{nil, &closing{Closer: closer, then: func() { l.end(of) }}}
		}
		return l.watch(request, strings.NewReader(text), closer, of)
	}
	const n = 50
	many := strings.Repeat(`{"object":{}}`, n)
	t.Run("one that begins with all there is", func(t *testing.T) {
		l := newLedger(bounds{document: 1 << 20, list: n * perItem, lists: 1 << 20})
		_, err := io.ReadAll(open(l, "sendInitialEvents=true", many))
		require.ErrorIs(t, err, ErrTooLarge)
		all, err := io.ReadAll(open(l, "", many))
		require.NoError(t, err, "changes are held only in the place of what was there")
		assert.Len(t, all, len(many))
	})
	t.Run("all of them", func(t *testing.T) {
		l := newLedger(bounds{document: 1 << 20, list: 1 << 20, lists: 3 * n * perItem / 2})
		first := open(l, "sendInitialEvents=true&fieldSelector=a", many)
		_, err := io.ReadAll(first)
		require.NoError(t, err)
		_, err = io.ReadAll(open(l, "sendInitialEvents=true&fieldSelector=b", many))
		require.ErrorIs(t, err, ErrTooLarge)
		require.NoError(t, first.Close())
		require.NoError(t, first.Close())
		_, err = io.ReadAll(open(l, "sendInitialEvents=true&fieldSelector=b", many[:len(many)/2]))
		require.NoError(t, err, "what an ended watch brought does not count")
	})
	t.Run("one object", func(t *testing.T) {
		l := newLedger(bounds{document: n * perValue, list: 1 << 20, lists: 1 << 20})
		_, err := io.ReadAll(open(l, "", strings.Repeat(`{"object":{}}`, 3)+`{"object":{"a":[`+strings.Repeat(`{},`, n)+`{}]}}`))
		require.ErrorIs(t, err, ErrTooLarge)
	})
}

// TestALargeClusterIsWithinTheBounds weighs a volume as CSI drivers make them.
func TestALargeClusterIsWithinTheBounds(t *testing.T) {
	const listed, watched = 33_000, 75_000
	managed := func(manager, fields string) string {
		return fmt.Sprintf(`{"manager":%q,"operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":%s}`, manager, fields)
	}
	volume := `{"metadata":{"name":"pvc-01234567-89ab-4cde-8f01-234567890123","uid":"01234567-89ab-4cde-8f01-234567890123","resourceVersion":"123456789","creationTimestamp":"2026-01-02T03:04:05Z",` +
		`"annotations":{"pv.kubernetes.io/provisioned-by":"disk.csi.example.com","volume.kubernetes.io/provisioner-deletion-secret-name":"","volume.kubernetes.io/provisioner-deletion-secret-namespace":""},` +
		`"finalizers":["kubernetes.io/pv-protection","external-attacher/disk-csi-example-com"],"managedFields":[` +
		managed("csi-provisioner",
			`{"f:metadata":{"f:annotations":{".":{},"f:pv.kubernetes.io/provisioned-by":{},"f:volume.kubernetes.io/provisioner-deletion-secret-name":{},"f:volume.kubernetes.io/provisioner-deletion-secret-namespace":{}}},`+
				`"f:spec":{"f:accessModes":{},"f:capacity":{".":{},"f:storage":{}},"f:claimRef":{".":{},"f:apiVersion":{},"f:kind":{},"f:name":{},"f:namespace":{},"f:resourceVersion":{},"f:uid":{}},`+
				`"f:csi":{".":{},"f:driver":{},"f:fsType":{},"f:volumeAttributes":{".":{},"f:storage.kubernetes.io/csiProvisionerIdentity":{}},"f:volumeHandle":{}},"f:nodeAffinity":{".":{},"f:required":{}},`+
				`"f:persistentVolumeReclaimPolicy":{},"f:storageClassName":{},"f:volumeMode":{}}}`) + "," +
		managed("kube-controller-manager", `{"f:status":{"f:lastPhaseTransitionTime":{},"f:phase":{}}}`) + "," +
		managed("csi-attacher", `{"f:metadata":{"f:finalizers":{"v:\"external-attacher/disk-csi-example-com\"":{}}}}`) + `]},` +
		`"spec":{"capacity":{"storage":"20Gi"},"csi":{"driver":"disk.csi.example.com","volumeHandle":"projects/example/zones/europe-west1-b/disks/pvc-01234567-89ab-4cde-8f01-234567890123","fsType":"ext4",` +
		`"volumeAttributes":{"storage.kubernetes.io/csiProvisionerIdentity":"1767323045000-8081-disk.csi.example.com"}},"accessModes":["ReadWriteOnce"],` +
		`"claimRef":{"kind":"PersistentVolumeClaim","namespace":"shop","name":"data-database-0","uid":"01234567-89ab-4cde-8f01-234567890123","apiVersion":"v1","resourceVersion":"123456700"},` +
		`"persistentVolumeReclaimPolicy":"Delete","storageClassName":"standard-rwo","volumeMode":"Filesystem",` +
		`"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"topology.example.com/zone","operator":"In","values":["europe-west1-b"]}]}]}}},` +
		`"status":{"phase":"Bound","lastPhaseTransitionTime":"2026-01-02T03:04:05Z"}}`
	require.True(t, json.Valid([]byte(volume)))
	assert.Greater(t, len(volume), 2500, "most of them are hardly larger")
	assert.Less(t, listed*weigh(volume, true), usual.list)
	assert.Less(t, watched*int64(len(volume)+perItem), usual.list)
}
