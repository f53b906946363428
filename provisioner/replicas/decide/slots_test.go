package decide_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// slotWorld is the standby of a world without snapshots there: real claims, and what they have.
type slotWorld struct {
	// claims are by name, content is by UID: -1 is torn.
	claims  map[string]*corev1.PersistentVolumeClaim
	content map[types.UID]int
	// taken are those that a failover gave a claim, or is about to give: nobody may write there.
	taken map[types.UID]bool
	// wants is the version that a failover is to, nil if there is none; holds says that it has its slots.
	wants *record.Version
	holds bool
	// newest is the number of the newest version, and lost says that since it was sealed somebody deleted a slot, or a claim got one: so
	// there may be none.
	newest int64
	lost   bool
	// got counts the slots that claims got.
	got int
}

// useSlots has the standby have no snapshots.
func (w *world) useSlots() {
	w.slots = &slotWorld{claims: map[string]*corev1.PersistentVolumeClaim{}, content: map[types.UID]int{}, taken: map[types.UID]bool{}}
	r := w.o.Record
	r.Slots, w.o.Sealed = true, nil
	for i := range r.Len() {
		r.At(i).ClaimUID = types.UID(fmt.Sprintf("0f7b153b-4645-44d9-9d0e-f64b2f68c8b%d", i))
		r.At(i).Head, r.At(i).Slot = r.NameSlot(i), r.NameSlot(i)
	}
}

// seeSlots reads the slots that the record has.
func (w *world) seeSlots() {
	if w.slots == nil || w.o.Record == nil {
		return
	}
	for i := range w.o.Claims {
		seen, part := &w.o.Claims[i], w.o.Record.At(i)
		seen.Head, seen.Slot = w.slots.claims[part.Head.Name], w.slots.claims[part.Slot.Name]
		if w.copies[i].head = 0; seen.Head != nil {
			w.copies[i].head = w.slots.content[seen.Head.UID]
		}
	}
}

// keepSlots writes to the heads what they have now.
func (w *world) keepSlots() {
	if w.slots == nil {
		return
	}
	for i, seen := range w.o.Claims {
		if seen.Head == nil || w.copies[i].head == w.slots.content[seen.Head.UID] {
			continue
		}
		w.must(seen.Head.Annotations[keys.Seal] == "", "what says that it is a version is written to")
		w.must(!w.slots.taken[seen.Head.UID], "what a claim has, or is about to get, is written to")
		for v := range w.o.Record.Sealed {
			w.must(w.o.Record.Sealed[v].At(i).UID != seen.Head.UID, "what counts as a version is written to")
		}
		w.slots.content[seen.Head.UID] = w.copies[i].head
	}
}

func (w *world) makeSlot(i int) {
	seen, name := &w.o.Claims[i], w.o.Record.At(i).Head.Name
	require.NotContains(w.t, w.slots.claims, name)
	seen.Head.Name = name
	w.slots.claims[name] = seen.Head
}

func (w *world) dropSlot(slot *corev1.PersistentVolumeClaim) {
	require.False(w.t, w.slots.taken[slot.UID], "what a claim got is not removed")
	delete(w.slots.claims, slot.Name)
}

// happenSlots lets a failover go on, and things go wrong.
func (w *world) happenSlots() {
	s, o := w.slots, &w.o
	if o.Record == nil {
		return
	}
	if w.failing && w.spoils && w.random.IntN(200) == 0 && s.wants == nil {
		// Somebody deletes a slot.
		for _, name := range slices.Sorted(maps.Keys(s.claims)) {
			if !s.taken[s.claims[name].UID] {
				delete(s.claims, name)
				s.lost = true
				break
			}
		}
	}
	w.failOver()
	w.seeSlots()
}

// failOver lets a failover begin, get the slots of the version that it has chosen, and be committed or aborted.
func (w *world) failOver() {
	s, o := w.slots, &w.o
	switch newest := o.Record.Newest(); {
	case s.wants == nil:
		if newest == nil || !w.failing || w.random.IntN(100) > 0 {
			return
		}
		// It has chosen the version before the replica knows.
		chosen := o.Record.Sealed[w.random.IntN(len(o.Record.Sealed))]
		s.wants = &chosen
	case !o.Moving:
		if w.random.IntN(4) == 0 {
			o.Moving, o.FailedOver = true, o.Now
		}
	case !s.holds:
		if o.Record.Version(s.wants.Name) == nil {
			// It is refused.
			o.Moving, o.FailedOver, s.wants = false, o.FailedOver.AddDate(-1, 0, 0), nil
			return
		}
		if s.holds = w.random.IntN(4) == 0; s.holds {
			for i := range o.Claims {
				uid := s.wants.At(i).UID
				if w.slotOf(uid) == nil {
					// It was deleted.
					s.holds, o.Moving, s.wants = false, false, nil
					return
				}
			}
			for i := range o.Claims {
				s.taken[s.wants.At(i).UID] = true
			}
		}
	case w.random.IntN(4) == 0:
		commits := w.random.IntN(2) == 0
		for i := range o.Claims {
			has := s.wants.At(i)
			require.Equal(w.t, has.Root, fmt.Sprint(s.content[has.UID]), "the claim gets what was compared")
			if commits {
				delete(w.slotOf(has.UID).Labels, keys.ReplicaOf)
				s.got++
			} else {
				delete(s.taken, has.UID)
			}
		}
		s.lost = s.lost || commits
		s.wants, s.holds, o.Moving = nil, false, false
	}
}

func (w *world) slotOf(uid types.UID) *corev1.PersistentVolumeClaim {
	for _, slot := range w.slots.claims {
		if slot.UID == uid {
			return slot
		}
	}
	return nil
}

// checkSlots checks what holds at each moment: what counts as a version is whole, of one moment, and none of it is written to; once there
// is one there always is.
func (w *world) checkSlots() {
	s, r := w.slots, w.o.Record
	newest, last := r.Newest(), 0
	if newest != nil && newest.Number > s.newest {
		s.newest, s.lost = newest.Number, false
	}
	w.must(newest != nil || s.newest == 0 || s.lost, "there was a version, and there is none")
	w.must(len(r.Sealed) <= 2, "there are %d versions in two slots", len(r.Sealed))
	for v := range r.Sealed {
		version := &r.Sealed[v]
		for i := range r.Len() {
			has := version.At(i)
			if w.slotOf(has.UID) == nil {
				w.must(s.lost || version != newest, "the newest version is gone")
				continue
			}
			content := s.content[has.UID]
			w.must(has.Root == strconv.Itoa(content), "%d in version %s is not what was compared, %s", content, version.Name, has.Root)
			w.must(version.Root == has.Root, "the claims of version %s are not of one moment", version.Name)
			w.must(content > 0, "version %s is torn", version.Name)
			w.must(content >= last, "version %s is older than the one before it", version.Name)
			last = content
		}
	}
	for name, slot := range s.claims {
		if slot.Annotations[keys.Seal] != "" {
			w.must(s.content[slot.UID] > 0, "%s says that it has a version", name)
		}
	}
	if newest != nil {
		for i := range r.Len() {
			w.must(newest.At(i).UID != r.At(i).Head.UID, "the newest version is where the next point is written")
		}
	}
}

// requireNoSlots checks that nothing is left but what claims got.
func (w *world) requireNoSlots() {
	for _, slot := range w.slots.claims {
		require.True(w.t, w.slots.taken[slot.UID] || slot.Labels[keys.ReplicaOf] == "", "%s is left", slot.Name)
	}
}

// sealed is what a real claim says that has a version.
func sealed(t *testing.T, number int64, cut time.Time, root string) string {
	t.Helper()
	text := sealText(number, cut, root)
	require.NotEmpty(t, text)
	return text
}

// sealText is what a slot says that has the version of a point.
func sealText(number int64, cut time.Time, root string) string {
	seal := volumesnapshot.Seal{Namespace: "shop", Name: "data", UID: "c1", Primary: "home", Number: number, Cut: cut, Root: root,
		Class: "fast", Size: resource.MustParse("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
	text, err := seal.Encode()
	if err != nil {
		return ""
	}
	return text
}

// inSlots is an observation between two points of a replica with two versions in slots: the newest is in the slot.
func inSlots(t *testing.T) decide.Observation {
	t.Helper()
	o := observation(2)
	r := o.Record
	r.Slots, o.Sealed, r.ClaimUID = true, nil, "0f7b153b-4645-44d9-9d0e-f64b2f68c8bb"
	for _, ref := range []*backing.Ref{&r.Head, &r.Slot} {
		*ref = r.NameSlot(0)
	}
	r.Head.UID, r.Slot.UID = "v1", "v2" // as its versions
	mine := map[string]string{keys.ReplicaOf: "r1"}
	of := func(v int) map[string]string {
		r.Sealed[v].Root = "a"
		return map[string]string{keys.Seal: sealed(t, r.Sealed[v].Number, r.Sealed[v].Cut, "a")}
	}
	o.Claims[0].Head = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: r.Head.Name, UID: "v1", Labels: mine,
		Annotations: of(0)}}
	o.Claims[0].Slot = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: r.Slot.Name, UID: "v2", Labels: mine,
		Annotations: of(1)}}
	return o
}

func TestAVersionInASlotCountsUntilItIsWrittenTo(t *testing.T) {
	gone := &metav1.Time{Time: noon}
	for name, row := range map[string]struct {
		tune   func(o *decide.Observation)
		left   []types.UID // nil: nothing is to be done
		head   types.UID
		says   string
		renews bool
	}{
		"both are there":             {tune: func(*decide.Observation) {}},
		"a move holds the claim":     {tune: func(o *decide.Observation) { o.Moving, o.Claims[0].Slot = true, nil }},
		"the standby is away":        {tune: func(o *decide.Observation) { o.Standby.Unusable, o.Claims[0].Slot = "away", nil }},
		"somebody deleted the older": {tune: func(o *decide.Observation) { o.Claims[0].Head = nil }, left: []types.UID{"v2"}, says: "deleted"},
		"somebody deleted the newest": {tune: func(o *decide.Observation) { o.Claims[0].Slot = nil }, left: []types.UID{"v1"},
			says: "somebody deleted real claim shop/pvc-0f7b153b-4645-44d9-9d0e-f64b2f68c8bb-"},
		"the newest was written to since, for the record is of a backup": {tune: func(o *decide.Observation) {
			o.Claims[0].Slot.Annotations = nil
		}, left: []types.UID{"v1"}, head: "v2", says: "was written to since"},
		"the older has another version": {tune: func(o *decide.Observation) {
			o.Claims[0].Head.Annotations = map[string]string{keys.Seal: sealed(t, 7, noon, "a")}
		}, left: []types.UID{"v2"}, head: "v1", says: "was written to since"},
		"the older says another content": {tune: func(o *decide.Observation) { o.Record.Sealed[0].Root = "b" }, left: []types.UID{"v2"},
			head: "v1", says: "was written to since"},
		"somebody deletes the newest": {tune: func(o *decide.Observation) { o.Claims[0].Slot.DeletionTimestamp = gone },
			left: []types.UID{"v1"}, head: "v2", says: "deleted"},
		"a claim got the newest": {tune: func(o *decide.Observation) { o.Claims[0].Slot.Labels = nil }, left: []types.UID{"v1"}, renews: true},
		"a claim got the older": {tune: func(o *decide.Observation) { o.Claims[0].Head.Labels = nil }, left: []types.UID{"v2"},
			renews: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := inSlots(t)
			row.tune(&o)
			step := decide.Next(o)
			save, ok := step.Action.(decide.Save)
			require.Equal(t, row.left != nil, ok, step)
			if !ok {
				return
			}
			var left []types.UID
			for _, version := range save.Record.Sealed {
				left = append(left, version.UID)
			}
			assert.Equal(t, row.left, left)
			assert.Equal(t, left[0], save.Record.Slot.UID, "the next point is not written to what is left")
			assert.Equal(t, row.head, save.Record.Head.UID)
			if assert.Equal(t, row.says == "", step.Say == "", step.Say); row.says != "" {
				assert.Contains(t, step.Say, row.says)
			}
			renewed := save.Record.Head.Name != o.Record.Head.Name && save.Record.Head.Name != o.Record.Slot.Name
			assert.Equal(t, row.renews, renewed, "a claim has what it got under its name")
		})
	}
}

func TestAPointInSlotsIsGivenUpOnceTheClaimMayGetOne(t *testing.T) {
	o := inSlots(t)
	o.Claims[0].Head.Annotations = nil // it was written to
	o.Record.Point = &record.Point{Number: 3, Stage: record.Seal, Cut: noon, Since: noon}
	o.Moving = true
	assert.Equal(t, decide.TakeSeal{}, decide.Next(o).Action, "other moves are in nobody's way")
	o.FailedOver = noon.Add(-1)
	save, gives := decide.Next(o).Action.(decide.Save)
	require.True(t, gives)
	assert.Equal(t, record.Clean, save.Record.Point.Stage)
	assert.Contains(t, save.Record.Point.Why, "failover")
	assert.Len(t, save.Record.Sealed, 2)
}

func TestASlotIsSealedByItsOwnMarkAlone(t *testing.T) {
	o := inSlots(t)
	o.Record.Point = &record.Point{Number: 3, Stage: record.Seal, Cut: noon, Since: noon, Session: record.Session{Root: "a"}}
	head := o.Claims[0].Head
	assert.Equal(t, decide.TakeSeal{}, decide.Next(o).Action, "what it says is of an earlier point, whose request came late, or of somebody")
	o.Now = noon.Add(11 * time.Minute)
	save, ok := decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Contains(t, save.Record.Point.Why, "does not keep annotation lodestone.dev/seal")
	head.Annotations[keys.Seal] = sealed(t, 3, noon, "a")
	save, ok = decide.Next(o).Action.(decide.Save)
	require.True(t, ok)
	assert.Equal(t, record.Clean, save.Record.Point.Stage)
	assert.True(t, save.Record.Newest().IsIn(0, head.Annotations[keys.Seal]))
}
