package pods

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/session"
)

// telling is a runner whose caches show pod shop/db-0 of home, with UID u1, and its pod in west, with
// UID r1, in namespace shop-h1 there.
type telling struct {
	*runner
	home, west *fake.Clientset
}

func newTelling(t *testing.T) telling {
	t.Helper()
	home, west := fake.NewClientset(), fake.NewClientset()
	factory := informers.NewSharedInformerFactory(home, 0)
	core := factory.Core().V1()
	c, err := New(Config{Home: home, Pods: core.Pods().Informer(), Nodes: core.Nodes().Informer(), Namespaces: core.Namespaces().Informer()})
	require.NoError(t, err)
	s := &session.Session{Cluster: "west", Node: "west", HomeID: "h1", Strategy: v1alpha1.Suffixed, Gate: clients.NewGate(),
		Client: west}
	x := telling{home: home, west: west, runner: &runner{Controller: c, session: s, queue: newQueue(), states: newStates(),
		events: newRemoteEvents(), claims: newRemoteClaims(),
		namespaces: &remoteNamespaces{session: s, watched: map[string]*watchedNamespace{},
			requests: informerOf(&remotev1alpha1.NamespaceRequest{})}}}
	x.put(x.namespaces.requests, &remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Tenant(), Name: "shop-h1"},
		Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "shop"}})
	x.namespaces.watched["shop-h1"] = &watchedNamespace{pods: informerOf(&corev1.Pod{}), shadows: informerOf(&shadowPod{})}
	x.put(x.config.Pods, homePodOn("west", "u1"))
	x.put(x.there(), remotePodOf("r1", "u1"))
	return x
}

func informerOf(object runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{}, object, 0, cache.Indexers{})
}

func (x telling) put(informer cache.SharedIndexInformer, object runtime.Object) {
	_ = informer.GetIndexer().Add(object)
}

func (x telling) there() cache.SharedIndexInformer { return x.namespaces.watched["shop-h1"].pods }

func remotePodOf(uid, home types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-h1", Name: "db-0", UID: uid,
		Labels: map[string]string{keys.HomeID: "h1", keys.PodUID: string(home)}}}
}

// said is an event about the pod in west.
func said(uid string, changes ...func(*corev1.Event)) *corev1.Event {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop-h1", Name: "db-0." + uid, UID: types.UID(uid)},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop-h1", Name: "db-0", UID: "r1"},
		Type:           corev1.EventTypeWarning, Reason: "FailedMount", Message: "no such device", Count: 1,
		Source: corev1.EventSource{Component: "kubelet"},
	}
	for _, change := range changes {
		change(event)
	}
	return event
}

// written writes what waits, and returns the events of home.
func (x telling) written(t *testing.T) []corev1.Event {
	t.Helper()
	var keys []eventKey
	for k := range x.events.waiting {
		keys = append(keys, k)
	}
	for _, k := range keys {
		_, _ = x.recordEvent(t.Context(), k)
	}
	list, err := x.home.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

// counts returns how many events were counted with a result.
func (x telling) counts(result string) int {
	return int(testutil.ToFloat64(x.told.WithLabelValues("west", result)))
}

func TestWhatIsSaidOfTheRemotePodIsShownOnTheHomePod(t *testing.T) {
	for name, test := range map[string]struct {
		change func(telling)
		event  func(*corev1.Event)
		want   bool
	}{
		"by the kubelet there":                     {want: true},
		"though the home pod is ending":            {change: func(x telling) { ending(x) }, want: true},
		"not of an earlier pod of the name":        {event: func(e *corev1.Event) { e.InvolvedObject.UID = "r0" }},
		"not of a pod that home did not ask for":   {event: func(e *corev1.Event) { e.InvolvedObject.Name = "owner" }},
		"not of a pod of another namespace there":  {event: func(e *corev1.Event) { e.InvolvedObject.Namespace = "kube-system" }},
		"not if that pod runs for another":         {change: func(x telling) { x.put(x.there(), remotePodOf("r1", "u2")) }},
		"not if that pod runs for nobody":          {change: func(x telling) { x.put(x.there(), remotePodOf("r1", "")) }},
		"not if the home pod is on another node":   {change: func(x telling) { x.put(x.config.Pods, homePodOn("east", "u1")) }},
		"not if the home pod is gone":              {change: func(x telling) { _ = x.config.Pods.GetIndexer().Delete(homePodOn("west", "u1")) }},
		"not if the next pod has its name":         {change: func(x telling) { x.put(x.config.Pods, homePodOn("west", "u9")) }},
		"not in a namespace that was not given":    {change: func(x telling) { notGiven(x) }},
		"not if the namespace is that of another":  {change: func(x telling) { ofAnother(x) }},
		"not if nobody can be told by such a word": {event: func(e *corev1.Event) { e.Reason = "no word" }},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTelling(t)
			if test.change != nil {
				test.change(x)
			}
			event := said("e1")
			if test.event != nil {
				test.event(event)
			}
			x.remoteEvent(event)
			events := x.written(t)
			if !test.want {
				assert.Empty(t, events)
				assert.Empty(t, x.events.waiting)
				return
			}
			require.Len(t, events, 1)
			assert.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "db-0", UID: "u1"},
				events[0].InvolvedObject)
			assert.Equal(t, "cluster west: no such device", events[0].Message)
			assert.Equal(t, 1, x.counts("shown"))
		})
	}
}

// withClaims makes claim shop/data of home, with UID c1, and that in west with UID r2 which is for it.
func (x telling) withClaims(t *testing.T, change func(home, there *corev1.PersistentVolumeClaim)) {
	t.Helper()
	home := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "c1"}}
	there := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-h1", Name: "data", UID: "r2",
		Labels:      map[string]string{keys.HomeID: "h1", keys.ClaimUID: "c1"},
		Annotations: map[string]string{keys.Claim: "shop/data"}}}
	if change != nil {
		change(home, there)
	}
	_, err := x.home.CoreV1().PersistentVolumeClaims(home.Namespace).Create(t.Context(), home, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = x.west.CoreV1().PersistentVolumeClaims(there.Namespace).Create(t.Context(), there, metav1.CreateOptions{})
	require.NoError(t, err)
}

// saidOfClaim is an event about the claim in west.
func saidOfClaim(uid string, changes ...func(*corev1.Event)) *corev1.Event {
	return said(uid, append([]func(*corev1.Event){func(e *corev1.Event) {
		e.InvolvedObject = corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "shop-h1", Name: "data", UID: "r2"}
		e.Reason, e.Message = "ProvisioningFailed", "no room for shop-h1/data"
		e.Source.Component = "disk.west.test"
	}}, changes...)...)
}

func TestWhatIsSaidOfTheRemoteClaimIsShownOnTheHomeClaim(t *testing.T) {
	for name, test := range map[string]struct {
		change func(home, there *corev1.PersistentVolumeClaim)
		event  func(*corev1.Event)
		want   bool
	}{
		"by the provisioner there": {want: true},
		"of one that a move made": {change: func(home, there *corev1.PersistentVolumeClaim) {
			home.UID = "0d9f2d8c-5c1c-4a5e-9a55-3d1b36c3f1aa"
			there.Labels[keys.ClaimUID] = string(home.UID)
			there.Name = backing.Moved(home.UID, 2)
		}, event: func(e *corev1.Event) {
			e.InvolvedObject.Name = backing.Moved("0d9f2d8c-5c1c-4a5e-9a55-3d1b36c3f1aa", 2)
		}, want: true},
		"not of an earlier claim of the name":   {event: func(e *corev1.Event) { e.InvolvedObject.UID = "r1" }},
		"not of one that is gone":               {event: func(e *corev1.Event) { e.InvolvedObject.Name = "gone" }},
		"not of a namespace that is not home's": {event: func(e *corev1.Event) { e.InvolvedObject.Namespace, e.Namespace = "bank", "bank" }},
		"not of a claim of that cluster's owner": {change: func(_, there *corev1.PersistentVolumeClaim) {
			there.Labels, there.Annotations = nil, nil
		}},
		"not if it is for an earlier claim": {change: func(home, _ *corev1.PersistentVolumeClaim) { home.UID = "c2" }},
		"not if it says another name": {change: func(_, there *corev1.PersistentVolumeClaim) {
			there.Annotations[keys.Claim] = "shop/other"
		}},
		"not if it speaks for another namespace": {change: func(_, there *corev1.PersistentVolumeClaim) {
			there.Annotations[keys.Claim] = "bank/data"
		}},
		"not if the claim of home is gone": {change: func(home, _ *corev1.PersistentVolumeClaim) { home.Name = "other" }},
		"not if its name is none":          {event: func(e *corev1.Event) { e.InvolvedObject.Name = "No Name" }},
		"not if its UID is that of a hostile one": {event: func(e *corev1.Event) {
			e.InvolvedObject.UID = types.UID(strings.Repeat("x", 1<<20))
		}},
		"not if nobody can be told by such a word": {event: func(e *corev1.Event) { e.Reason = "no word" }},
	} {
		t.Run(name, func(t *testing.T) {
			x := newTelling(t)
			x.withClaims(t, test.change)
			event := saidOfClaim("e1")
			if test.event != nil {
				test.event(event)
			}
			x.remoteEvent(event)
			events := x.written(t)
			assert.Empty(t, x.events.waiting)
			if !test.want {
				assert.Empty(t, events)
				return
			}
			require.Len(t, events, 1)
			claim, err := x.home.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data", UID: claim.UID},
				events[0].InvolvedObject)
			assert.Equal(t, "cluster west: no room for shop/data", events[0].Message)
			assert.Equal(t, "disk.west.test, cluster west", events[0].Source.Component)
			assert.Equal(t, "west", events[0].Labels[keys.Cluster])
			assert.Equal(t, 1, x.counts("shown"))
		})
	}
}

func TestEventsOfAClaimAreCountedUpAndBounded(t *testing.T) {
	x := newTelling(t)
	x.withClaims(t, nil)
	x.remoteEvent(saidOfClaim("e1"))
	require.Len(t, x.written(t), 1)
	x.claims, x.events = newRemoteClaims(), newRemoteEvents() // as after a restart
	x.remoteEvent(saidOfClaim("e1", func(e *corev1.Event) { e.Count = 2 }))
	events := x.written(t)
	require.Len(t, events, 1)
	assert.EqualValues(t, 2, events[0].Count)

	// Both clusters are asked once which claim it is.
	asked := len(x.west.Actions())
	for i := range 2000 {
		x.remoteEvent(saidOfClaim(fmt.Sprint("n", i), func(e *corev1.Event) { e.Type = corev1.EventTypeNormal }))
		x.remoteEvent(saidOfClaim(fmt.Sprint("w", i)))
	}
	assert.LessOrEqual(t, len(x.events.waiting), podEvents)
	assert.LessOrEqual(t, len(x.written(t)), podEvents+1)
	assert.Len(t, x.west.Actions(), asked)

	// Claims of which there are none: as many as the cluster says, of which some are remembered.
	for i := range 2 * maxClaims {
		x.remoteEvent(saidOfClaim(fmt.Sprint("m", i), func(e *corev1.Event) { e.InvolvedObject.UID = types.UID(fmt.Sprint("made-up-", i)) }))
	}
	assert.LessOrEqual(t, len(x.events.waiting), waitingEvents)
	assert.LessOrEqual(t, x.claims.byUID.Len(), maxClaims)
}

func TestAClaimOfHomeIsNotFloodedByClaimsThatSayThatTheyAreForIt(t *testing.T) {
	x := newTelling(t)
	x.withClaims(t, nil)
	of := ""
	// What the cluster answers, which is not trusted: one claim after another of this name, each with the labels of the first.
	x.west.PrependReactor("get", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		there, err := x.west.Tracker().Get(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "shop-h1", "data")
		if claim, ok := there.(*corev1.PersistentVolumeClaim); ok {
			claim = claim.DeepCopy()
			claim.UID, there = types.UID(of), claim
		}
		return true, there, err
	})
	shown := 0
	for i := range 4 * podEvents {
		of = fmt.Sprint("claim-", i)
		x.remoteEvent(saidOfClaim(fmt.Sprint("e", i), func(e *corev1.Event) { e.InvolvedObject.UID = types.UID(of) }))
		shown = len(x.written(t))
	}
	assert.Equal(t, podEvents, shown)
	assert.Equal(t, 3*podEvents, x.counts("left-out"))
	assert.Empty(t, x.events.waiting)
}

func TestAClaimThatCannotBeReadIsAskedForAgain(t *testing.T) {
	x := newTelling(t)
	x.withClaims(t, nil)
	fails := true
	x.west.PrependReactor("get", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, errors.New("connection refused")
	})
	x.remoteEvent(saidOfClaim("e1"))
	assert.Empty(t, x.written(t))
	assert.Len(t, x.events.waiting, 1)
	fails = false
	assert.Len(t, x.written(t), 1)
	assert.Empty(t, x.events.waiting)
}

func ending(x telling) {
	pod, now := homePodOn("west", "u1"), metav1.Now()
	pod.DeletionTimestamp = &now
	x.put(x.config.Pods, pod)
}

func notGiven(x telling) {
	for _, request := range x.namespaces.requests.GetIndexer().List() {
		_ = x.namespaces.requests.GetIndexer().Delete(request)
	}
}

func ofAnother(x telling) {
	x.put(x.namespaces.requests, &remotev1alpha1.NamespaceRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: x.session.Tenant(), Name: "shop-h1"},
		Spec:       remotev1alpha1.NamespaceRequestSpec{HomeNamespace: "bank"}})
	pod := homePodOn("west", "u2")
	pod.Namespace = "bank"
	x.put(x.config.Pods, pod)
}

func TestAnEventThatComesAgainIsCountedUp(t *testing.T) {
	x := newTelling(t)
	x.remoteEvent(said("e1"))
	require.Len(t, x.written(t), 1)
	x.remoteEvent(said("e1", func(e *corev1.Event) { e.Count, e.Message = 2, "still no such device" }))
	events := x.written(t)
	require.Len(t, events, 1)
	assert.EqualValues(t, 2, events[0].Count)
	assert.Equal(t, "cluster west: still no such device", events[0].Message)

	// The program starts anew and knows nothing.
	x.states, x.events = newStates(), newRemoteEvents()
	x.remoteEvent(said("e1", func(e *corev1.Event) { e.Count = 3 }))
	events = x.written(t)
	require.Len(t, events, 1)
	assert.EqualValues(t, 3, events[0].Count)
	x.remoteEvent(said("e1"))
	assert.Len(t, x.written(t), 1, "one that was written although the answer was lost")

	// Home has forgotten it, as API servers do after an hour.
	require.NoError(t, x.home.CoreV1().Events("shop").Delete(t.Context(), events[0].Name, metav1.DeleteOptions{}))
	x.remoteEvent(said("e1", func(e *corev1.Event) { e.Count = 4 }))
	events = x.written(t)
	require.Len(t, events, 1)
	assert.EqualValues(t, 4, events[0].Count)
}

func TestAnEventWaitsUntilItsPodIsSeen(t *testing.T) {
	x := newTelling(t)
	_ = x.there().GetIndexer().Delete(remotePodOf("r1", "u1"))
	x.remoteEvent(said("e1"))
	assert.Empty(t, x.written(t))
	assert.Len(t, x.events.waiting, 1)
	x.put(x.there(), remotePodOf("r1", "u1"))
	assert.Len(t, x.written(t), 1)

	// One about a pod that never comes does not wait for ever.
	_ = x.there().GetIndexer().Delete(remotePodOf("r1", "u1"))
	x.remoteEvent(said("e2"))
	for k, late := range x.events.waiting {
		late.seen = late.seen.Add(-podSeenWithin - time.Second)
		x.events.waiting[k] = late
	}
	assert.Len(t, x.written(t), 1)
	assert.Empty(t, x.events.waiting)
}

func TestAHostileClusterCannotFloodHome(t *testing.T) {
	x := newTelling(t)
	// Ever new events, of which each is megabytes.
	for i := range 2000 {
		x.remoteEvent(said(fmt.Sprint("e", i), func(e *corev1.Event) {
			e.Type, e.Message = corev1.EventTypeNormal, fmt.Sprint(i, strings.Repeat("x", 1<<16))
		}))
	}
	assert.Len(t, x.events.waiting, podEvents-podWarnings)
	assert.Equal(t, 2000-(podEvents-podWarnings), x.counts("left-out"))
	for i := range 2000 {
		x.remoteEvent(said(fmt.Sprint("w", i)))
	}
	assert.Len(t, x.events.waiting, podEvents, "some were left for warnings")
	for _, waiting := range x.events.waiting {
		assert.LessOrEqual(t, len(waiting.event.Message), 1024)
	}
	// The same ones again and again, while they wait: that makes no more.
	for i := range 2000 {
		x.remoteEvent(said("e0", func(e *corev1.Event) { e.Count = int32(i + 2) }))
	}
	assert.Len(t, x.events.waiting, podEvents)
	events := x.written(t)
	require.Len(t, events, podEvents)
	for i := range 2000 {
		x.remoteEvent(said("e0", func(e *corev1.Event) { e.Count = int32(i + 3000) }))
	}
	assert.Empty(t, x.events.waiting, "nor once they are written")

	// Other pods are not held up, until there are too many.
	for i := range 2 * waitingEvents {
		name, uid := fmt.Sprint("web-", i), types.UID(fmt.Sprint("web-", i))
		pod, there := homePodOn("west", uid), remotePodOf("r"+uid, uid)
		pod.Name, there.Name = name, name
		x.put(x.config.Pods, pod)
		x.put(x.there(), there)
		x.remoteEvent(said("e"+name, func(e *corev1.Event) { e.InvolvedObject.Name, e.InvolvedObject.UID = name, there.UID }))
	}
	assert.Len(t, x.events.waiting, waitingEvents)
}

func TestAHostileClusterCannotHaveOneEventWrittenWithoutEnd(t *testing.T) {
	x := newTelling(t)
	writes := 0
	// Whenever the event is written, it has changed again.
	x.home.PrependReactor("*", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() == "create" || action.GetVerb() == "patch" {
			writes++
			x.remoteEvent(said("e1", func(e *corev1.Event) { e.Count = int32(writes + 1) }))
		}
		return false, nil, nil
	})
	x.remoteEvent(said("e1"))
	for range 10 * podEvents {
		x.written(t)
	}
	assert.LessOrEqual(t, writes, podEvents+1)
}

func TestAWriteIsTriedAgainIfItMaySucceed(t *testing.T) {
	events := schema.GroupResource{Resource: "events"}
	for name, test := range map[string]struct {
		err   error
		fails int
		want  int // events
		tries int
	}{
		"the API server is away for a moment": {err: errors.New("connection refused"), fails: 2, want: 1, tries: 3},
		"it has too much to do":               {err: apierrors.NewTooManyRequests("", 0), fails: 2, want: 1, tries: 3},
		"it stays away":                       {err: errors.New("connection refused"), fails: 1000, tries: eventTries + 1},
		"the namespace is going":              {err: apierrors.NewForbidden(events, "db-0", errors.New("it ends")), fails: 1000, tries: 1},
		"the namespace is gone":               {err: apierrors.NewNotFound(events, "db-0"), fails: 1000, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTelling(t)
				tries := 0
				x.home.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
					tries++
					return tries <= test.fails, nil, test.err
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); x.events.queue.Run(ctx, eventWorkers, x.recordEvent) }()
				x.remoteEvent(said("e1"))
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, test.tries, tries)
				assert.Len(t, x.written(t), test.want)
				assert.Empty(t, x.events.waiting)
				cancel()
				<-done
				x.queue.ShutDown()
			})
		})
	}
}
