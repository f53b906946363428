package claims

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

func TestWrittenStandsInUntilTheInformerShowsIt(t *testing.T) {
	claim := func(uid, version string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: types.UID(uid),
			ResourceVersion: version}}
	}
	created, marked := claim("a", "5"), claim("a", "7")
	for _, row := range []struct {
		name               string
		seen, over, result *corev1.PersistentVolumeClaim
		age                time.Duration
		want               *corev1.PersistentVolumeClaim
	}{
		{name: "created and not seen yet", result: created, want: created},
		{name: "created and seen since", result: created, seen: claim("a", "6"), want: claim("a", "6")},
		{name: "created long ago and not there: it was deleted", result: created, age: time.Hour},
		{name: "changed and not seen yet", seen: claim("a", "5"), over: claim("a", "5"), result: marked, want: marked},
		{name: "changed and something newer seen", seen: claim("a", "9"), over: claim("a", "5"), result: marked, want: claim("a", "9")},
		{name: "changed and replaced by another", seen: claim("b", "5"), over: claim("a", "5"), result: marked, want: claim("b", "5")},
		{name: "changed and gone since", over: claim("a", "5"), result: marked},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newMemory()
			w.setWritten("claim", "west", row.over, row.result)
			assert.Equal(t, row.want, w.latest("claim", "west", row.seen, time.Now().Add(row.age)))
			assert.Nil(t, w.latest("claim", "home", nil, time.Now()), "another cluster")
			w.dropWritten("claim", "west")
			assert.Equal(t, row.seen, w.latest("claim", "west", row.seen, time.Now()))
		})
	}
}

func TestWrittenKeepsNothingThatARemoteClusterSaysOfAnotherClaim(t *testing.T) {
	claim := func(name, uid string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(uid), ResourceVersion: "1", Labels: map[string]string{"a": "b"}}}
	}
	for name, result := range map[string]*corev1.PersistentVolumeClaim{"another name": claim("other", "a"), "another UID": claim("data", "b"),
		"no UID": claim("data", "")} {
		w := newMemory()
		w.setWritten("claim", "west", claim("data", "a"), result)
		assert.Equal(t, claim("data", "a"), w.latest("claim", "west", claim("data", "a"), time.Now()), name)
	}
	w := newMemory()
	w.setWritten("claim", "west", nil, claim("data", "a/b"))
	assert.Empty(t, w.latest("claim", "west", nil, time.Now()).Labels, "what is broken is nobody's")
}

// Two writes in a row, of which the informer shows neither yet, or only the first.
func TestWrittenTwiceStandsInUntilTheInformerShowsBoth(t *testing.T) {
	claim := func(version string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "a", ResourceVersion: version}}
	}
	w := newMemory()
	w.setWritten("claim", "west", nil, claim("5"))
	w.setWritten("claim", "west", claim("5"), claim("7"))
	assert.Equal(t, claim("7"), w.latest("claim", "west", nil, time.Now()), "neither is seen: without it a second one would be created")
	assert.Equal(t, claim("7"), w.latest("claim", "west", claim("5"), time.Now()), "the first is seen")
	assert.Equal(t, claim("10"), w.latest("claim", "west", claim("10"), time.Now()), "something newer is seen")
	assert.Nil(t, w.latest("claim", "west", nil, time.Now()), "then it is gone")

	w.setWritten("claim", "west", claim("9"), claim("10"))
	w.setWritten("claim", "west", claim("10"), claim("11"))
	assert.Equal(t, claim("11"), w.latest("claim", "west", claim("9"), time.Now()), "the informer is two behind")
	assert.Nil(t, w.latest("claim", "west", nil, time.Now()), "what had been seen and is not there is gone")
}

func TestWhatARemoteClusterSaysIsWrittenOnlySoOften(t *testing.T) {
	m, now := newMemory(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	writes := 0
	for second := range 600 {
		at := now.Add(time.Duration(second) * time.Second)
		if !m.quietUntil("u1", at).After(at) {
			m.spend("u1", at)
			writes++
		}
	}
	assert.LessOrEqual(t, writes, reflections+int(10*time.Minute/reflectPause))
	assert.GreaterOrEqual(t, writes, int(10*time.Minute/reflectPause), "but never left for good")
	assert.Zero(t, m.quietUntil("u2", now), "another claim has its own")
	m.forget("u1")
	assert.Empty(t, m.claims)
}

func TestARefusedSizeIsAskedForEverMoreSeldom(t *testing.T) {
	m, now := newMemory(), time.Now()
	assert.Nil(t, m.of("u1").sizeRefused(now))
	var pauses []time.Duration
	for range 6 {
		m.setRefusedSize("u1", &steps.RefusedSize{Size: resource.MustParse("3Gi"), Reason: "QuotaExceeded"}, now)
		kept := m.of("u1").sizeRefused(now)
		require.NotNil(t, kept)
		pauses = append(pauses, kept.Until.Sub(now))
		now = kept.Until
		assert.Nil(t, m.of("u1").sizeRefused(now), "it is time to ask again")
	}
	const m1 = time.Minute
	assert.Equal(t, []time.Duration{m1, 2 * m1, 4 * m1, 8 * m1, 10 * m1, 10 * m1}, pauses)

	m.setRefusedSize("u1", &steps.RefusedSize{Size: resource.MustParse("2Gi")}, now)
	assert.Equal(t, m1, m.of("u1").sizeRefused(now).Until.Sub(now), "another size begins anew")
	m.setRefusedSize("u1", nil, now)
	assert.Nil(t, m.of("u1").sizeRefused(now))
	m.setRefusedSize("u1", &steps.RefusedSize{Size: resource.MustParse("2Gi")}, now)
	m.forget("u1")
	assert.Nil(t, m.of("u1").sizeRefused(now))
}

func TestRefusedAttributesAreKeptForAWhile(t *testing.T) {
	gold := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "disk.csi.dev"}
	b, _ := carried()
	now := time.Now()
	o := steps.Observation{UID: "u1", Now: now, Claim: asking("gold")}
	for name, test := range map[string]struct {
		objects []runtime.Object
		fails   error
		reason  string
	}{
		"the class is missing": {objects: []runtime.Object{b}, reason: "NoAttributesClass"},
		"the change is refused": {objects: []runtime.Object{b, gold}, fails: apierrors.NewForbidden(claimsResource, "data", errors.New("no")),
			reason: "AttributesRefused"},
		"the change is not valid": {objects: []runtime.Object{b, gold}, fails: apierrors.NewInvalid(kind, "data", nil),
			reason: "AttributesRefused"},
		"the change is made": {objects: []runtime.Object{b, gold}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.objects...)
			if test.fails != nil {
				client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, test.fails
				})
			}
			f := New(Config{Client: client})
			f.memory.setRefusedAttributes("u1", &steps.RefusedAttributes{Attributes: "older", Until: now.Add(time.Hour)})
			result := f.modifyBacking(t.Context(), o, steps.ModifyBacking{Backing: steps.Backing{Cluster: keys.Home, Claim: b}})
			require.NoError(t, result.err)
			kept := f.memory.of("u1").attributesRefused(now)
			assert.Equal(t, test.reason != "", result.again)
			if test.reason == "" {
				assert.Nil(t, kept)
				return
			}
			require.NotNil(t, kept)
			assert.Equal(t, test.reason, kept.Reason)
			assert.Equal(t, "gold", kept.Attributes)
			assert.Nil(t, f.memory.of("u1").attributesRefused(now.Add(attributesAgain)), "then it is tried again")
		})
	}
}
