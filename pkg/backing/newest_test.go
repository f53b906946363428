package backing_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// moved is the UID of the virtual claim of these tests.
const moved types.UID = "0b5c7a52-6f0e-4b2e-9a53-3f1f5c0d9e11"

var (
	movedClaim = types.NamespacedName{Namespace: "shop", Name: "data"}
	storage    = backing.Place{HomeID: "h1", StorageNamespace: "lodestone-storage"}
)

// published returns a copy that a virtual volume has stood for.
func published(cluster, name string, generation int64) backing.Copy {
	b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID(cluster + "-" + name),
		Labels:      map[string]string{keys.ClaimUID: string(moved), keys.HomeID: "h1"},
		Annotations: map[string]string{keys.Claim: movedClaim.String()},
	}}
	if cluster == keys.Home {
		b.Namespace = "lodestone-storage"
	}
	if generation > 0 {
		b.Annotations[keys.Generation] = strconv.FormatInt(generation, 10)
	}
	return backing.Copy{Cluster: cluster, Claim: b}
}

// standsFor returns a virtual volume that stands for a copy.
func standsFor(c backing.Copy, generation int64) *corev1.PersistentVolume {
	annotations := map[string]string{keys.Backing: c.Ref().String()}
	if generation > 0 {
		annotations[keys.Generation] = strconv.FormatInt(generation, 10)
	}
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(moved), Annotations: annotations}}
}

func TestWhichCopyOfAClaimIsTheNewest(t *testing.T) {
	twin := published(keys.Home, "pvc-"+string(moved), 0)
	for name, row := range map[string]struct {
		volume int64
		west   int64
		change func(twin, west *corev1.PersistentVolumeClaim)
		newer  bool
		may    bool
		by     int64
	}{
		"a later move made another":                          {west: 1, newer: true},
		"a much later one, after more moves than home knows": {volume: 2, west: 7, newer: true},
		"the volume is of the later move":                    {volume: 2, west: 1},
		"the volume was chosen before a newer one":           {volume: 3, west: 2},
		"no number says which":                               {may: true},
		"the same number says which to nobody":               {volume: 2, west: 2, may: true},
		"another was never used": {west: 1, change: func(_, west *corev1.PersistentVolumeClaim) {
			west.Annotations[keys.Unpublished] = "true"
		}},
		"a move has replaced the other, too": {west: 1, change: func(_, west *corev1.PersistentVolumeClaim) {
			west.Labels[keys.MoveOf] = "m1"
		}},
		"the other is of another home": {west: 1, change: func(_, west *corev1.PersistentVolumeClaim) {
			west.Labels[keys.HomeID] = "h2"
		}},
		"the other is of another claim": {west: 1, change: func(_, west *corev1.PersistentVolumeClaim) {
			west.Labels[keys.ClaimUID] = "other"
		}},
		"the other names another claim than its own name and namespace do": {west: 1, change: func(_, west *corev1.PersistentVolumeClaim) {
			west.Annotations[keys.Claim] = "bank/data"
		}},
		"the other is in a namespace of somebody else": {west: 1, change: func(_, west *corev1.PersistentVolumeClaim) {
			west.Namespace = "bank"
		}},
		"a number that no move wrote": {west: 1, change: numbered("99999999999"), may: true},
		"a number that is none":       {west: 1, change: numbered("-1"), may: true},
		"the other is being deleted": {west: 1, newer: true, change: func(_, west *corev1.PersistentVolumeClaim) {
			west.DeletionTimestamp = &metav1.Time{}
		}},
		"its own claim says that a move replaced it": {west: 1, by: 1, change: func(twin, west *corev1.PersistentVolumeClaim) {
			twin.Annotations[keys.ReplacedBy], west.Labels[keys.HomeID] = "1", "h2"
		}},
		"its own claim was replaced before it was chosen": {volume: 2, west: 1, change: func(twin, _ *corev1.PersistentVolumeClaim) {
			twin.Annotations[keys.ReplacedBy] = "1"
		}},
		"its own claim, made for a claim before a restore, was replaced": {by: 1, change: func(twin, west *corev1.PersistentVolumeClaim) {
			twin.Annotations[keys.ReplacedBy], twin.Labels[keys.ClaimUID], west.Labels[keys.HomeID] = "1", "other", "h2"
		}},
		"a claim of that name, made anew for another claim, says nothing": {volume: 2, west: 1, change: func(twin,
			_ *corev1.PersistentVolumeClaim) {
			twin.Annotations[keys.ReplacedBy], twin.Labels[keys.ClaimUID], twin.UID = "3", "other", "anew"
		}},
		"its own claim is of another home by now": {volume: 2, west: 1, change: func(twin, _ *corev1.PersistentVolumeClaim) {
			twin.Annotations[keys.ReplacedBy], twin.Labels[keys.HomeID] = "3", "h2"
		}},
		"its own claim was made anew": {volume: 2, west: 1, change: func(twin, _ *corev1.PersistentVolumeClaim) { twin.UID = "anew" }},
	} {
		volume := standsFor(twin, row.volume)
		mine, west := published(keys.Home, twin.Claim.Name, 0), published("west", "data", row.west)
		if row.change != nil {
			row.change(mine.Claim, west.Claim)
		}
		got := storage.Compare(volume, movedClaim, moved, []backing.Copy{mine, west, west})
		assert.Len(t, got.Newer, map[bool]int{true: 1}[row.newer], name)
		assert.Len(t, got.Unclear, map[bool]int{true: 1}[row.may], name)
		assert.Equal(t, row.by, got.ReplacedBy, name)
		assert.Equal(t, row.newer || row.by > 0, got.Behind(), name)
		if got.Behind() {
			text := got.Describe(movedClaim)
			assert.Contains(t, text, "kubectl lodestone choose pvc data -n shop --uid", name)
			assert.Contains(t, text, string(mine.Claim.UID), name)
			// Whoever chooses the older one is not asked again.
			chosen := standsFor(mine, got.After())
			assert.False(t, storage.Compare(chosen, movedClaim, moved, []backing.Copy{mine, west}).Behind(), name)
		}
	}
}

func numbered(text string) func(twin, west *corev1.PersistentVolumeClaim) {
	return func(_, west *corev1.PersistentVolumeClaim) { west.Annotations[keys.Generation] = text }
}

// TestARestoredHomeNeverTakesAnOlderCopyForTheNewest plays moves of a claim through clusters, in which copies are kept or removed, choices
// and restores of home to any moment before.
func TestARestoredHomeNeverTakesAnOlderCopyForTheNewest(t *testing.T) {
	clusters := []string{keys.Home, "west", "east"}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := &world{t: t, copies: map[backing.Ref]backing.Copy{}}
		first := published(keys.Home, "pvc-"+string(moved), 0)
		w.copies[first.Ref()], w.volume = first, standsFor(first, 0)
		var backups []world
		for range 12 {
			switch r.IntN(5) {
			case 0:
				backups = append(backups, w.clone())
			case 1:
				if len(backups) > 0 {
					w.restore(backups[r.IntN(len(backups))])
				}
			default:
				w.move(clusters[r.IntN(len(clusters))], r.IntN(2) == 0)
			}
			standing := w.standing()
			newest := w.newestKept()
			if backing.GenerationOf(newest.Claim) > backing.GenerationOf(w.volume) {
				require.True(t, standing.Behind(), "seed %d: %v is newer than %s", seed, newest.Ref(), w.volume.Annotations[keys.Backing])
				require.Equal(t, newest.Ref(), standing.Newer[0].Ref(), "seed %d", seed)
			} else if len(backups) == 0 {
				require.False(t, standing.Behind(), "seed %d: a claim that was only moved is locked", seed)
			}
			if standing.Behind() {
				w.choose(standing, r.IntN(2) == 0)
				require.False(t, w.standing().Behind(), "seed %d: who has chosen is asked again", seed)
			}
		}
	}
}

// world has the copies of one claim in all clusters, and its volume.
type world struct {
	t      *testing.T
	copies map[backing.Ref]backing.Copy
	volume *corev1.PersistentVolume
	made   int
}

func (w *world) clone() world {
	copied := world{volume: w.volume.DeepCopy(), copies: map[backing.Ref]backing.Copy{}}
	for ref, c := range w.copies {
		copied.copies[ref] = backing.Copy{Cluster: c.Cluster, Claim: c.Claim.DeepCopy()}
	}
	return copied
}

// restore gives home the state of a backup; what is in the other clusters stays.
func (w *world) restore(backup world) {
	backup = backup.clone()
	for ref := range w.copies {
		if ref.Cluster == keys.Home {
			delete(w.copies, ref)
		}
	}
	for ref, c := range backup.copies {
		if ref.Cluster == keys.Home {
			w.copies[ref] = c
		}
	}
	w.volume = backup.volume
}

func (w *world) list() []backing.Copy {
	var all []backing.Copy
	for _, c := range w.copies {
		all = append(all, c)
	}
	return all
}

func (w *world) standing() backing.Standing {
	return storage.Compare(w.volume, movedClaim, moved, w.list())
}

// newestKept returns the copy of the latest move that is there and in use, or the volume's own.
func (w *world) newestKept() backing.Copy {
	current, err := backing.RefOf(w.volume)
	require.NoError(w.t, err)
	newest, found := w.copies[current]
	if !found {
		newest = backing.Copy{Cluster: current.Cluster, Claim: &corev1.PersistentVolumeClaim{}}
	}
	last := backing.GenerationOf(w.volume)
	for _, c := range w.copies {
		if n := backing.GenerationOf(c.Claim); n > last && c.Claim.Labels[keys.MoveOf] == "" {
			newest, last = c, n
		}
	}
	return newest
}

// move moves the claim as package moves does; kept says whether the source stays.
func (w *world) move(to string, kept bool) {
	standing := w.standing()
	last := []int64{standing.After() - 1}
	for _, c := range w.copies {
		last = append(last, backing.GenerationOf(c.Claim), backing.ReplacedBy(c.Claim))
	}
	w.made++
	target := published(to, backing.Moved(moved, w.made%30+1), backing.NextGeneration(last...))
	target.Claim.UID = types.UID(fmt.Sprintf("made-%d", w.made))
	if source, ok := w.copies[standing.Current]; ok && kept {
		source.Claim.Labels[keys.MoveOf] = "m"
		source.Claim.Annotations[keys.ReplacedBy] = target.Claim.Annotations[keys.Generation]
	} else if ok {
		delete(w.copies, standing.Current)
	}
	w.copies[target.Ref()], w.volume = target, standsFor(target, backing.GenerationOf(target.Claim))
}

func (w *world) choose(standing backing.Standing, newer bool) {
	if !newer || len(standing.Newer) == 0 {
		w.volume.Annotations[keys.Generation] = strconv.FormatInt(standing.After(), 10)
		return
	}
	chosen := standing.Newer[0]
	if older, ok := w.copies[standing.Current]; ok {
		older.Claim.Labels[keys.MoveOf] = "adopted"
		older.Claim.Annotations[keys.ReplacedBy] = chosen.Claim.Annotations[keys.Generation]
	}
	w.volume = standsFor(chosen, backing.GenerationOf(chosen.Claim))
}
