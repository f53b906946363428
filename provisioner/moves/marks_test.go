package moves

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	events "k8s.io/client-go/tools/record"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

// served is a client of an API server that has these VolumeMoves, or that fails.
func served(t *testing.T, moves []v1alpha1.VolumeMove, fails bool) *clients.VolumeMoveClient {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if fails {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_ = json.NewEncoder(w).Encode(v1alpha1.VolumeMoveList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "VolumeMoveList"}, Items: moves})
	}))
	t.Cleanup(server.Close)
	client, err := clients.NewVolumeMoveClient(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return client
}

// TestMarksStayWhileAMoveMayHoldTheClaim has a replica that knows nothing of the move yet, which another
// one may just have begun: only what API servers say now counts.
func TestMarksStayWhileAMoveMayHoldTheClaim(t *testing.T) {
	of := func(uid types.UID, finished bool, claims ...string) []v1alpha1.VolumeMove {
		move := v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "m", UID: uid},
			Spec: v1alpha1.VolumeMoveSpec{Claims: claims}}
		if finished {
			move.Status.Conditions = []metav1.Condition{{Type: v1alpha1.MoveFinished, Status: metav1.ConditionTrue}}
		}
		return []v1alpha1.VolumeMove{move}
	}
	in := func(phase v1alpha1.MovePhase) *record.Record {
		r := recordIn(phase)
		r.Namespace = "shop"
		return r
	}
	for name, row := range map[string]struct {
		moves  []v1alpha1.VolumeMove
		stored *record.Record // what the API server has
		known  *record.Record // what this replica has read
		fails  bool
		stays  bool
	}{
		"no move at all": {},
		"a record that this replica has not read":      {stored: in(v1alpha1.MoveFence), stays: true},
		"a record that it has":                         {known: in(v1alpha1.MoveFence), stays: true},
		"the record of a move that is over":            {stored: in(v1alpha1.MoveDone)},
		"a move without a record that names the claim": {moves: of("m2", false, "other", "data"), stays: true},
		"one that has ended":                           {moves: of("m2", true, "data")},
		"one that names another claim":                 {moves: of("m2", false, "other")},
		"moves cannot be read":                         {fails: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "u1",
				Finalizers: []string{"x/y", keys.MoveFinalizer}, Labels: map[string]string{keys.Moving: keys.MovingNow},
				Annotations: map[string]string{keys.Move: "m1", keys.MoveTouched: "1"}}}
			client := fake.NewClientset(claim)
			if row.stored != nil {
				data, err := record.Encode(row.stored)
				require.NoError(t, err)
				require.NoError(t, client.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system",
					Name: record.SecretName("m1")}, Data: map[string][]byte{recordKey: data}}))
			}
			c := New(Config{Client: client, Namespace: "system", Records: NewRecords(), Moves: served(t, row.moves, row.fails),
				Recorder: events.NewFakeRecorder(10), Class: func(string) *storagev1.StorageClass { return nil },
				Pods: cache.NewSharedIndexInformer(nil, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})})
			if row.known != nil {
				c.Records.set("m1", row.known)
			}
			after, err := c.syncMarks(t.Context(), types.NamespacedName{Namespace: "shop", Name: "data"})
			assert.Equal(t, row.fails, err != nil, "%v", err)
			now, err := client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, row.stays, isMarked(now))
			if row.stays {
				assert.Equal(t, claim.ObjectMeta, now.ObjectMeta)
				assert.True(t, row.fails || after > 0, "it is looked at again")
				return
			}
			assert.Equal(t, []string{"x/y"}, now.Finalizers, "those of others stay")
			assert.Empty(t, now.Labels)
			assert.Empty(t, now.Annotations)
		})
	}
}

// A claim that was restored from a backup stands for a real claim that carries the UID of the one before: also that may say
// that a move has replaced it.
func TestTheRealClaimThatARestoredVolumeNamesIsAmongItsCopies(t *testing.T) {
	twin := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "pvc-u0", UID: "b",
		Labels: map[string]string{keys.ClaimUID: "u0", keys.HomeID: "h1"}, Annotations: map[string]string{keys.ReplacedBy: "1"}}}
	c := &Controller{Config: Config{Place: backing.Place{HomeID: "h1", StorageNamespace: "n"}}}
	at := site.Site{Access: remote.Access{Client: fake.NewClientset(twin)}, Home: true}
	for name, row := range map[string]struct {
		backing string
		found   int
	}{
		"it is":                         {backing: "home/n/pvc-u0/b", found: 1},
		"not another that has its name": {backing: "home/n/pvc-u0/c"},
		"not one that is gone":          {backing: "home/n/pvc-u2/b"},
		"not one in another cluster":    {backing: "west/n/pvc-u0/b"},
	} {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-u0",
			Annotations: map[string]string{keys.Backing: row.backing}}}
		earlier, err := backing.RefOf(volume)
		require.NoError(t, err, name)
		copies, err := c.copiesIn(t.Context(), at, keys.Home, "n", "u1", earlier)
		require.NoError(t, err, name)
		assert.Len(t, copies, row.found, name)
		standing := c.Place.Compare(volume, types.NamespacedName{Namespace: "shop", Name: "data"}, "u1", copies)
		assert.Equal(t, row.found > 0, standing.Behind(), name)
	}
}
