package claims

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/home"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// A backing claim of a moved volume that policy Retain keeps is found, although nothing
// names it.
func TestABackingClaimThatAMoveNamedIsFoundWhenNothingElseIsLeft(t *testing.T) {
	const uid = types.UID("5f3c0a52-6c0e-4f63-8a2e-007027119911")
	for name, test := range map[string]struct {
		alter func(*corev1.PersistentVolumeClaim)
		claim bool
		found bool
	}{
		"as it is":                       {found: true},
		"while it is a move's own":       {alter: func(b *corev1.PersistentVolumeClaim) { b.Labels[keys.MoveOf] = "m1" }},
		"not of another home":            {alter: func(b *corev1.PersistentVolumeClaim) { b.Labels[keys.HomeID] = "h2" }},
		"not while its claim is there":   {claim: true},
		"not under a name of no move":    {alter: func(b *corev1.PersistentVolumeClaim) { b.Name = "data" }},
		"not where it says nothing else": {alter: func(b *corev1.PersistentVolumeClaim) { b.Annotations = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "lodestone-storage", Name: backing.Moved(uid, 2), UID: "b",
				Labels: map[string]string{keys.ClaimUID: string(uid), keys.HomeID: "h1"}, Annotations: map[string]string{keys.Claim: "shop/data"},
			}}
			if test.alter != nil {
				test.alter(b)
			}
			require.NoError(t, s.Sources.Claims.GetStore().Add(b))
			if test.claim {
				s.claim("data", "", func(c *corev1.PersistentVolumeClaim) { c.UID = uid })
			}
			s.BackingChanged(b)
			if !test.found {
				assert.Empty(t, s.observe(uid, false).Backings)
				return
			}
			require.Len(t, s.observe(uid, false).Backings, 1)
			assert.Same(t, b, s.observe(uid, false).Backings[0].Claim)
		})
	}
}

// A claim that was restored from a backup has another UID than its volume and its backing claim were made for.
func TestARestoredClaimIsSeenWithTheBackingClaimOfTheOneBefore(t *testing.T) {
	s := newScene(t)
	twin := s.claim("pvc-u0", "", func(c *corev1.PersistentVolumeClaim) {
		c.Namespace, c.UID = "lodestone-storage", "b"
		c.Labels, c.Annotations = map[string]string{keys.ClaimUID: "u0", keys.HomeID: "h1"}, map[string]string{keys.Claim: "shop/data"}
	})
	s.BackingChanged(twin)
	require.Len(t, s.observe("u0", false).Backings, 1, "it is left behind")
	s.claim("data", "", func(c *corev1.PersistentVolumeClaim) { c.UID, c.Spec.VolumeName = "u1", "pvc-u0" })
	volume := func(name, claim string) {
		require.NoError(t, s.Sources.Volumes.GetStore().Add(&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{
				keys.Backing: "home/lodestone-storage/pvc-u0/b"}},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: claim, UID: types.UID(claim)}},
		}))
	}
	volume("pvc-u0", "u1")
	s.woken()

	o := s.observe("u1", false)
	require.Len(t, o.Backings, 1)
	assert.Same(t, twin, o.Backings[0].Claim)
	assert.Equal(t, [2]string{"", "lodestone-storage"}, [2]string{o.Another, o.Place})
	assert.Empty(t, s.observe("u0", false).Backings, "it is not left behind: a volume names it")
	s.BackingChanged(twin)
	assert.True(t, s.woken()["u1"])
	require.NoError(t, s.Sources.Claims.GetStore().Delete(twin))
	s.woken()
	s.volumeChanged(nil, &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{
		Namespace: "lodestone-storage", Name: "pvc-u0"}}})
	assert.True(t, s.woken()["u1"], "its twin is made anew")

	volume("pvc-u0-copy", "u2")
	assert.Equal(t, "pvc-u0-copy", s.observe("u1", false).Another)
	assert.Equal(t, "pvc-u0", s.observe("u2", false).Another)
	s.volumeChanged(s.Sources.Virtual("u2"), nil)
	assert.Equal(t, map[types.UID]bool{"u1": true, "u2": true}, s.woken(), "the one that is left is looked at")
}

// scene is a Controller whose caches the test fills.
type scene struct {
	*Controller
	t *testing.T
}

func newScene(t *testing.T) scene {
	t.Helper()
	sources, err := home.NewSources(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	require.NoError(t, err)
	for name, provisioner := range map[string]string{"lodestone": keys.Driver, "fast": "disk.csi.dev"} {
		require.NoError(t,
			sources.Classes.GetStore().Add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}))
	}
	f := New(Config{Sources: sources, Clusters: remote.New(remote.Config{}), Publisher: nobody{},
		Place: backing.Place{HomeID: "h1", StorageNamespace: "lodestone-storage"}})
	return scene{f, t}
}

// claim adds a claim of namespace shop to the cache, a copy of source if that is not empty.
func (s scene) claim(name, source string, alter ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("lodestone")},
	}
	if source != "" {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source}
	}
	for _, a := range alter {
		a(claim)
	}
	require.NoError(s.t, s.Sources.Claims.GetStore().Add(claim))
	return claim
}

// volume adds a volume to the cache, a virtual one if it is for a claim.
func (s scene) volume(name, claim string) {
	s.t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "v"}}
	if claim != "" {
		volume.Annotations = map[string]string{keys.Backing: fmt.Sprintf("home/lodestone-storage/pvc-%s/b", claim)}
		volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: claim, UID: types.UID(claim)}
	}
	require.NoError(s.t, s.Sources.Volumes.GetStore().Add(volume))
}

// woken returns the UIDs of the queued claims and empties the queue.
func (s scene) woken() map[types.UID]bool {
	found := map[types.UID]bool{}
	for s.queue.Len() > 0 {
		uid, _ := s.queue.Get()
		s.queue.Done(uid)
		found[uid] = true
	}
	return found
}

func TestTheVolumeThatWasMadeForATwinIsSeenByItsName(t *testing.T) {
	for name, test := range map[string]struct {
		volume string
		twin   func(*corev1.PersistentVolumeClaim)
		made   bool
	}{
		"it is made":                  {volume: "pvc-b", made: true},
		"none is":                     {volume: "pvc-other"},
		"one that it is bound to":     {volume: "pvc-b", twin: bound("pvc-b")},
		"one that it is not bound to": {volume: "pvc-b", twin: bound("other")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.claim("data", "")
			twin := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lodestone-storage", Name: "pvc-data", UID: "b",
				Labels: map[string]string{keys.ClaimUID: "data", keys.HomeID: "h1"}}}
			if test.twin != nil {
				test.twin(twin)
			}
			require.NoError(t, s.Sources.Claims.GetStore().Add(twin))
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: test.volume, UID: "v"},
				Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: twin.Namespace, Name: twin.Name, UID: "b"}}}
			require.NoError(t, s.Sources.Volumes.GetStore().Add(volume))
			backings := s.observe("data", false).Backings
			require.Len(t, backings, 1)
			assert.Equal(t, test.made, backings[0].Made != nil)
			s.volumeChanged(nil, volume)
			assert.True(t, s.woken()["data"], "its claim is looked at once the volume is seen")
		})
	}
}

func bound(volume string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = volume }
}

func real(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = ptr.To("fast") }

func TestSourceOfACopy(t *testing.T) {
	for name, test := range map[string]struct {
		given            func(s scene)
		exists, virtual  bool
		foreign, backing bool
	}{
		"there is none":       {given: func(scene) {}},
		"one that waits":      {given: func(s scene) { s.claim("data", "") }, exists: true},
		"one of a real class": {given: func(s scene) { s.claim("data", "", real) }, exists: true, foreign: true},
		"one of a class that is not known": {given: func(s scene) {
			s.claim("data", "", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("gone") })
		}, exists: true},
		"one with a real volume": {given: func(s scene) { s.claim("data", "", bound("disk-1")); s.volume("disk-1", "") },
			exists: true, foreign: true},
		"one with a volume that is not seen": {given: func(s scene) { s.claim("data", "", bound("disk-1")) }, exists: true},
		"one that names the virtual volume of another": {given: func(s scene) {
			s.claim("data", "", bound("pvc-other"))
			s.volume("pvc-other", "other")
		}, exists: true, foreign: true},
		"one with a virtual volume": {given: func(s scene) { s.claim("data", "", bound("pvc-data")); s.volume("pvc-data", "data") }, exists: true,
			virtual: true},
		"… and its twin": {given: func(s scene) {
			s.claim("data", "", bound("pvc-data"))
			s.volume("pvc-data", "data")
			s.claim("pvc-data", "", func(c *corev1.PersistentVolumeClaim) {
				c.Namespace, c.UID, c.Labels = "lodestone-storage", "b", map[string]string{keys.ClaimUID: "data", keys.HomeID: "h1"}
			})
		}, exists: true, virtual: true, backing: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			test.given(s)
			source := s.source(s.claim("copy", "data"))
			require.NotNil(t, source)
			assert.Equal(t, test.exists, source.Claim != nil)
			assert.Equal(t, test.virtual, source.Volume != nil)
			assert.Equal(t, test.foreign, source.Foreign)
			assert.Equal(t, test.backing, len(source.Backings) == 1)
		})
	}
	s := newScene(t)
	assert.Nil(t, s.source(s.claim("data", "")), "no copy")
}

func TestCopiesAreLookedAtWhenTheirSourceChanges(t *testing.T) {
	for name, change := range map[string]func(s scene, source *corev1.PersistentVolumeClaim){
		"the claim":         func(s scene, source *corev1.PersistentVolumeClaim) { s.claimChanged(source, source) },
		"the claim is made": func(s scene, source *corev1.PersistentVolumeClaim) { s.claimChanged(nil, source) },
		"the claim goes":    func(s scene, source *corev1.PersistentVolumeClaim) { s.claimChanged(source, nil) },
		"its virtual volume": func(s scene, _ *corev1.PersistentVolumeClaim) {
			s.volume("pvc-data", "data")
			s.volumeChanged(nil, s.Sources.Virtual("data"))
		},
		"its shadow": func(s scene, source *corev1.PersistentVolumeClaim) {
			shadow := source.DeepCopy()
			shadow.Labels = map[string]string{keys.ClaimUID: "data", keys.HomeID: "h1"}
			shadow.Annotations = map[string]string{keys.Claim: "shop/data"}
			s.BackingChanged(shadow)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			source := s.claim("data", "")
			s.claim("copy", "data")
			s.claim("complete", "data", bound("pvc-complete"))
			s.claim("of-another", "other")
			change(s, source)
			woken := s.woken()
			assert.Contains(t, woken, types.UID("copy"))
			assert.NotContains(t, woken, types.UID("complete"))
			assert.NotContains(t, woken, types.UID("of-another"))
			for claim := range s.memory.claims {
				assert.Nil(t, s.memory.of(claim).change, "no pod can go on yet")
			}
		})
	}
}

func TestPodsOfCopiesAreWokenOnceTheirSourceCanBeCopied(t *testing.T) {
	moving := func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations = map[string]string{keys.Move: "m"}
	}
	for name, test := range map[string]struct {
		before, after func(*corev1.PersistentVolumeClaim)
		want          bool
	}{
		"the source is bound":         {before: bound(""), after: bound("pvc-data"), want: true},
		"the source has been moved":   {before: moving, after: bound("pvc-data"), want: true},
		"the source is only labelled": {before: bound("pvc-data"), after: bound("pvc-data")},
		"the source begins to move":   {before: bound("pvc-data"), after: moving},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.claim("copy", "data")
			s.claimChanged(s.claim("data", "", test.before), s.claim("data", "", test.after))
			assert.Equal(t, test.want, s.memory.of("copy").change != nil)
		})
	}
}

// The labels and annotations that a class copies may have changed.
func TestAllClaimsOfAClassThatIsMadeAnewAreLookedAt(t *testing.T) {
	class := func(name, provisioner string, uid types.UID) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: string(uid)},
			Provisioner: provisioner}
	}
	for name, test := range map[string]struct {
		before, after *storagev1.StorageClass
		want          map[types.UID]bool
	}{
		"it is made":    {after: class("lodestone", keys.Driver, "1"), want: map[types.UID]bool{"waits": true, "bound": true}},
		"it is deleted": {before: class("lodestone", keys.Driver, "1"), want: map[types.UID]bool{"waits": true}},
		"it is made anew, seen late": {before: class("lodestone", keys.Driver, "1"), after: class("lodestone", keys.Driver, "2"),
			want: map[types.UID]bool{"waits": true, "bound": true}},
		"another virtual one is made": {after: class("other", keys.Driver, "1"), want: map[types.UID]bool{}},
		"a real one is made":          {after: class("slow", "disk.csi.dev", "1"), want: map[types.UID]bool{"waits": true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.claim("waits", "")
			s.claim("bound", "", bound("pvc-bound"))
			s.classChanged(test.before, test.after)
			assert.Equal(t, test.want, s.woken())
		})
	}
}

// A pod that uses a source and its copy would make each wait for the other.
func TestASourceDoesNotWaitForItsCopies(t *testing.T) {
	s := newScene(t)
	source, copied := s.claim("data", ""), s.claim("copy", "data")
	again, other := s.claim("again", "copy"), s.claim("other", "")
	s.claim("loop", "pool")
	loop := s.claim("pool", "loop")
	assert.True(t, s.isSourceOf(source, copied))
	assert.True(t, s.isSourceOf(source, again), "copies in between")
	assert.False(t, s.isSourceOf(copied, source), "a copy waits for its source")
	assert.False(t, s.isSourceOf(source, other))
	assert.False(t, s.isSourceOf(source, loop), "a circle ends")
	assert.False(t, s.isSourceOf(source, s.claim("dangling", "gone")))
}

// The informer of claims lags behind: the claim still seems to have the node that refused
// it. A backing claim for that node would be refused again.
func TestNodeThatWasJustTakenOffAClaimIsNotUsedAgain(t *testing.T) {
	seen := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c", ResourceVersion: "5",
			Annotations: map[string]string{keys.SelectedNode: "full", keys.StorageProvisioner: keys.Driver}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("virtual")},
	}
	client := fake.NewClientset()
	client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		patched := seen.DeepCopy()
		patched.ResourceVersion = "6"
		delete(patched.Annotations, keys.SelectedNode)
		return true, patched, nil
	})
	sources, err := home.NewSources(informers.NewSharedInformerFactory(client, 0))
	require.NoError(t, err)
	require.NoError(t, sources.Claims.GetStore().Add(seen))
	f := New(Config{Client: client, Sources: sources, Clusters: remote.New(remote.Config{}), Publisher: idlePublisher{},
		Place: backing.Place{StorageNamespace: "storage"}})
	node := func() string { return f.observe("c", false).Claim.Annotations[keys.SelectedNode] }
	require.Equal(t, "full", node())

	require.NoError(t, f.reschedule(t.Context(), steps.Observation{Claim: seen}, nil))
	assert.Empty(t, node())

	chosen := seen.DeepCopy()
	chosen.ResourceVersion, chosen.Annotations[keys.SelectedNode] = "7", "other"
	require.NoError(t, sources.Claims.GetStore().Update(chosen))
	assert.Equal(t, "other", node(), "what is newer than the write counts")

	require.NoError(t, sources.Claims.GetStore().Delete(chosen))
	assert.Nil(t, f.observe("c", false).Claim)
	assert.Empty(t, f.memory.claims)
}

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
