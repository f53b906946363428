package claims

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
)

var noon = metav1.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func eventOf(about types.UID, reason string, ago time.Duration, changes ...func(*corev1.Event)) corev1.Event {
	e := corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: reason},
		InvolvedObject: corev1.ObjectReference{UID: about}, Type: corev1.EventTypeWarning, Reason: reason,
		LastTimestamp: metav1.NewTime(noon.Add(-ago)),
	}
	for _, c := range changes {
		c(&e)
	}
	return e
}

func TestTheLastWarningAboutAClaimCounts(t *testing.T) {
	normal := func(e *corev1.Event) { e.Type = corev1.EventTypeNormal }
	series := func(e *corev1.Event) {
		e.LastTimestamp, e.Series = metav1.Time{}, &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(noon.Time)}
	}
	once := func(e *corev1.Event) { e.LastTimestamp, e.EventTime = metav1.Time{}, metav1.NewMicroTime(noon.Time) }
	for name, test := range map[string]struct {
		events []corev1.Event
		want   string
	}{
		"none": {},
		"the later": {events: []corev1.Event{eventOf("b1", "Late", time.Second), eventOf("b1", "Early", time.Minute)},
			want: "Late"},
		"one that goes on": {events: []corev1.Event{eventOf("b1", "Series", 0, series), eventOf("b1", "Early", time.Minute)},
			want: "Series"},
		"one of the newer kind": {events: []corev1.Event{eventOf("b1", "Once", 0, once), eventOf("b1", "Early", time.Minute)},
			want: "Once"},
		"what is no warning does not":    {events: []corev1.Event{eventOf("b1", "Normal", 0, normal)}},
		"what is about another does not": {events: []corev1.Event{eventOf("b2", "Other", 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := latest(test.events, "b1")
			if test.want == "" {
				assert.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			assert.Equal(t, test.want, got.Reason)
		})
	}
}

func TestEventsOfAClaimThatWaitsAreReadEverMoreSeldom(t *testing.T) {
	m, now := newMemory(), noon.Time
	assert.Nil(t, m.of("u1").warning())
	var pauses []time.Duration
	for range 6 {
		m.setLastWarning("u1", "b1", nil, now)
		pauses = append(pauses, m.of("u1").warning().Again.Sub(now))
	}
	assert.Equal(t, []time.Duration{20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 5 * time.Minute, 5 * time.Minute},
		pauses)

	event := eventOf("b1", "Failed", 0, func(e *corev1.Event) { e.Message = strings.Repeat("x", 1<<20) })
	m.setLastWarning("u1", "b1", &event, now)
	m.setLastWarning("u1", "b1", nil, now)
	assert.Equal(t, "Failed", m.of("u1").warning().Reason, "what was said once holds until something else is")
	assert.Len(t, m.of("u1").warning().Message, maxWarning)
	m.setLastWarning("u1", "b2", nil, now)
	assert.Equal(t, steps.LastWarning{Backing: "b2", Again: now.Add(readEventsSoon)}, *m.of("u1").warning(),
		"another backing claim begins anew")
	m.forget("u1")
	assert.Nil(t, m.of("u1").warning())
}

func TestAskingIsNoFailureWhateverTheAnswer(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "b1"}}
	step := steps.ReadEvents{Backing: steps.Backing{Cluster: keys.Home, Claim: claim}}
	for name, test := range map[string]struct {
		events []runtime.Object
		fails  bool
		want   string
	}{
		"nothing is said":      {},
		"something is":         {events: []runtime.Object{new(eventOf("b1", "Failed", 0))}, want: "Failed"},
		"events are forbidden": {events: []runtime.Object{new(eventOf("b1", "Failed", 0))}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.events...)
			if test.fails {
				client.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
			}
			f := New(Config{Client: client})
			result := f.readEvents(t.Context(), steps.Observation{UID: "u1"}, step)
			require.NoError(t, result.err)
			assert.True(t, result.again)
			said := f.memory.of("u1").warning()
			require.NotNil(t, said)
			assert.Equal(t, test.want, said.Reason)
		})
	}
}

// Listing events costs an API server as much as there are events, and waiting claims cause
// events: reading those of all claims at once would slow down what they wait for.
func TestFewOfManyClaimsThatWaitAreAskedAboutAtOnce(t *testing.T) {
	client, lists := fake.NewClientset(), 0
	client.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		lists++
		return false, nil, nil
	})
	f := New(Config{Client: client})
	began := time.Now()
	times := map[time.Time]bool{}
	const claims = 500
	for i := range claims {
		uid, b := types.UID(fmt.Sprintf("u%d", i)), types.UID(fmt.Sprintf("b%d", i))
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: b}}
		step := steps.ReadEvents{Backing: steps.Backing{Cluster: keys.Home, Claim: claim}}
		require.True(t, f.readEvents(t.Context(), steps.Observation{UID: uid}, step).again)
		said := f.memory.of(uid).warning()
		require.NotNil(t, said, "it must know when to ask again")
		assert.True(t, said.Again.After(began.Add(readEventsSoon/2)))
		times[said.Again.Truncate(time.Second)] = true
	}
	assert.LessOrEqual(t, lists, readEventsBurst+int(time.Since(began).Seconds()*readEventsRate)+1)
	assert.GreaterOrEqual(t, lists, readEventsBurst)
	assert.Greater(t, len(times), 5, "they do not all come again at once")
	assert.True(t, f.eventReads.allowed("west"), "another cluster has nothing to do with it")
}

func TestWhatWasSaidIsForgottenOnceTheBackingClaimIsBound(t *testing.T) {
	f := New(Config{})
	f.memory.setLastWarning("u1", "b1", nil, noon.Time)
	b := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "b1"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	o := steps.Observation{UID: "u1", Backings: []steps.Backing{{Claim: b}}}
	f.addLastWarning(&o)
	assert.NotNil(t, o.LastWarning)
	b.Status.Phase = corev1.ClaimBound
	f.addLastWarning(&o)
	assert.Nil(t, o.LastWarning)
	assert.Nil(t, f.memory.of("u1").warning())
}
