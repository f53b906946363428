package translate

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var arrived = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// mountFailed is an event about pod db-0 of namespace shop in a remote cluster, as its kubelet records it.
func mountFailed(changes ...func(*corev1.Event)) *corev1.Event {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0.1", UID: "e1"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "db-0", UID: "remote-uid",
			FieldPath: "spec.containers{app}"},
		Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "no such device",
		Source: corev1.EventSource{Component: "kubelet", Host: "west-1"}, Count: 3,
		FirstTimestamp: metav1.NewTime(time.Unix(0, 0)), LastTimestamp: metav1.NewTime(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
	for _, change := range changes {
		change(event)
	}
	return event
}

func eventHome() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "home-uid"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
}

func TestAnEventIsTakenOverForTheHomePod(t *testing.T) {
	got, ok := Event("west", eventHome(), mountFailed(), arrived)
	require.True(t, ok)
	assert.Equal(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: got.Name, Labels: map[string]string{keys.Cluster: "west"}},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "db-0", UID: "home-uid",
			FieldPath: "spec.containers{app}"},
		Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: "cluster west: no such device",
		Source: corev1.EventSource{Component: "kubelet, cluster west"}, ReportingController: "lodestone-virtualnode",
		Count: 3, FirstTimestamp: arrived, LastTimestamp: arrived,
	}, got)
}

func TestNothingOfAHostileEventIsTakenOverAsItIs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Event)
		// dropped: nothing is shown.
		dropped bool
		want    func(*corev1.Event)
	}{
		"about a claim":              {change: func(e *corev1.Event) { e.InvolvedObject.Kind = "PersistentVolumeClaim" }, dropped: true},
		"about another namespace":    {change: func(e *corev1.Event) { e.InvolvedObject.Namespace = "kube-system" }, dropped: true},
		"about no pod in particular": {change: func(e *corev1.Event) { e.InvolvedObject.UID = "" }, dropped: true},
		"without a UID":              {change: func(e *corev1.Event) { e.UID = "" }, dropped: true},
		"without a reason":           {change: func(e *corev1.Event) { e.Reason = "" }, dropped: true},
		"a reason of two lines":      {change: func(e *corev1.Event) { e.Reason = "Failed\nMount" }, dropped: true},
		"a reason without end":       {change: func(e *corev1.Event) { e.Reason = strings.Repeat("a", 1<<20) }, dropped: true},
		"the node that it has there": {change: func(e *corev1.Event) { e.Type, e.Reason = corev1.EventTypeNormal, "Scheduled" }, dropped: true},
		"another type": {change: func(e *corev1.Event) { e.Type = "Fatal" },
			want: func(e *corev1.Event) { e.Type = corev1.EventTypeNormal }},
		"a container that the pod has not": {change: func(e *corev1.Event) { e.InvolvedObject.FieldPath = "spec.containers{other}" },
			want: func(e *corev1.Event) { e.InvolvedObject.FieldPath = "" }},
		"a field that is no container": {change: func(e *corev1.Event) { e.InvolvedObject.FieldPath = strings.Repeat("x", 1<<20) },
			want: func(e *corev1.Event) { e.InvolvedObject.FieldPath = "" }},
		"by the program that a newer API names": {change: func(e *corev1.Event) {
			e.Source, e.ReportingController, e.Count = corev1.EventSource{}, "default-scheduler", 0
			e.Series = &corev1.EventSeries{Count: 7}
		}, want: func(e *corev1.Event) { e.Source.Component, e.Count = "default-scheduler, cluster west", 7 }},
		"by a program that calls itself another cluster": {change: func(e *corev1.Event) { e.Source.Component = "kubelet, cluster home" },
			want: func(e *corev1.Event) { e.Source.Component = "a program, cluster west" }},
		"by nobody": {change: func(e *corev1.Event) { e.Source.Component = "" },
			want: func(e *corev1.Event) { e.Source.Component = "a program, cluster west" }},
		"said less than once": {change: func(e *corev1.Event) { e.Count = -5 }, want: func(e *corev1.Event) { e.Count = 1 }},
		"a text that moves the cursor, turns the line around and breaks it": {
			change: func(e *corev1.Event) { e.Message = "a\x1b[2Jb\u202ec\nd\xffe" },
			want:   func(e *corev1.Event) { e.Message = "cluster west: a [2Jb c d e" }},
		"labels, annotations, owners and related objects": {change: func(e *corev1.Event) {
			e.Labels, e.Annotations = map[string]string{keys.Cluster: "home"}, map[string]string{"a": "b"}
			e.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
			e.Related, e.Action, e.ReportingInstance = &corev1.ObjectReference{Name: "x"}, "x", "x"
		}, want: func(*corev1.Event) {}},
		"the UID of the pod there": {change: func(e *corev1.Event) { e.Message = "back-off in pod db-0_shop(remote-uid)" },
			want: func(e *corev1.Event) { e.Message = "cluster west: back-off in pod db-0_shop(home-uid)" }},
	} {
		t.Run(name, func(t *testing.T) {
			want, _ := Event("west", eventHome(), mountFailed(), arrived)
			got, ok := Event("west", eventHome(), mountFailed(test.change), arrived)
			assert.Equal(t, test.dropped, !ok)
			if !test.dropped {
				test.want(want)
				assert.Equal(t, want, got)
			}
		})
	}
}

func TestNamesInAnEventAreThoseOfHome(t *testing.T) {
	there := mountFailed(func(e *corev1.Event) {
		e.Namespace, e.InvolvedObject.Namespace = "shop-h1", "shop-h1"
		e.Message = `pod shop-h1/db-0 uses claim "data" of shop-h1/data; back-off in db-0_shop-h1(remote-uid)`
	})
	got, ok := Event("west", eventHome(), there, arrived)
	require.True(t, ok)
	assert.Equal(t, `cluster west: pod shop/db-0 uses claim "data" of shop/data; back-off in db-0_shop(home-uid)`, got.Message)
	assert.Equal(t, "shop", got.InvolvedObject.Namespace)
}

func TestEachEventHasOneName(t *testing.T) {
	name := func(pod *corev1.Pod, there *corev1.Event) string {
		event, ok := Event("west", pod, there, arrived)
		require.True(t, ok)
		assert.Empty(t, validation.IsDNS1123Subdomain(event.Name), event.Name)
		return event.Name
	}
	again := mountFailed(func(e *corev1.Event) { e.Count, e.Message = 4, "another text" })
	assert.Equal(t, name(eventHome(), mountFailed()), name(eventHome(), again), "said again")
	another := mountFailed(func(e *corev1.Event) { e.UID = "e2" })
	assert.NotEqual(t, name(eventHome(), mountFailed()), name(eventHome(), another), "another event")
	next := eventHome()
	next.UID = "next-uid"
	assert.NotEqual(t, name(eventHome(), mountFailed()), name(next, mountFailed()), "the next pod of the name")
	next.Name = strings.Repeat("a", 235) + "." + strings.Repeat("b", 17)
	name(next, mountFailed())
}

func TestTheTextOfAnEventIsBounded(t *testing.T) {
	got, ok := Event("west", eventHome(), mountFailed(func(e *corev1.Event) { e.Message = strings.Repeat("ä", 1<<20) }), arrived)
	require.True(t, ok)
	assert.LessOrEqual(t, len(got.Message), 1024)
	assert.True(t, utf8.ValidString(got.Message))
	assert.True(t, strings.HasSuffix(got.Message, "ä…"))
}
