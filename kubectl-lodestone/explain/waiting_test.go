package explain

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/clients"
)

// on returns a gatherer of a home with these objects, and without any of ours.
func on(t *testing.T, objects ...runtime.Object) (*Gatherer, *fake.Clientset) {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	remotes, err := clients.NewRemoteClusters(config)
	require.NoError(t, err)
	moves, err := clients.NewVolumeMoveClient(config)
	require.NoError(t, err)
	client := fake.NewClientset(objects...)
	home := &cli.Cluster{Context: "home", Client: client, Remotes: remotes, Moves: moves}
	return &Gatherer{Home: home, Lodestone: "lodestone-system"}, client
}

func podNamed(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid", Labels: map[string]string{"app": "web"}},
		Spec:   corev1.PodSpec{SchedulerName: "default-scheduler", NodeName: map[bool]string{true: "home-1"}[phase == corev1.PodRunning]},
		Status: corev1.PodStatus{Phase: phase}}
}

var home1 = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "home-1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
	{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}

// getsOf has requests for one pod answered with an error.
func getsOf(client *fake.Clientset, name string, err error) {
	client.PrependReactor("get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		get, ok := action.(clienttesting.GetAction)
		return ok && get.GetName() == name, nil, err
	})
}

func TestWhatIsGoneWhenItIsLookedAtDoesNotWait(t *testing.T) {
	g, client := on(t, podNamed("gone", corev1.PodPending), podNamed("late", corev1.PodPending))
	getsOf(client, "gone", apierrors.NewNotFound(corev1.Resource("pods"), "gone"))
	found, omitted, err := g.Waiting(t.Context(), "shop", metav1.ListOptions{}, []cli.Kind{cli.Pod})
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "late", found[0].Name)
	assert.Zero(t, omitted)

	_, is, err := g.Find(t.Context(), "shop", cli.Reference{Kind: cli.Pod, Name: "gone"})
	require.NoError(t, err)
	assert.False(t, is)
	_, err = g.Answer(t.Context(), "shop", cli.Reference{Kind: cli.Pod, Name: "gone"})
	require.ErrorContains(t, err, `there is no pod "gone" in namespace "shop"`)
}

func TestWhatCannotBeReadIsNoReasonToSayThatNothingWaits(t *testing.T) {
	g, client := on(t, podNamed("late", corev1.PodPending))
	getsOf(client, "late", apierrors.NewInternalError(assert.AnError))
	_, _, err := g.Waiting(t.Context(), "shop", metav1.ListOptions{}, []cli.Kind{cli.Pod})
	require.ErrorContains(t, err, "cannot get pod shop/late")
}

func TestWhatWasFoundInTimeIsShown(t *testing.T) {
	g, client := on(t, podNamed("a", corev1.PodPending), podNamed("b", corev1.PodPending))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	over := &overAfter{Context: ctx}
	client.PrependReactor("get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		get, ok := action.(clienttesting.GetAction)
		over.is = ok && get.GetName() == "b"
		return over.is, nil, over.Err()
	})
	found, omitted, err := g.Waiting(over, "shop", metav1.ListOptions{}, []cli.Kind{cli.Pod})
	require.NoError(t, err)
	assert.Len(t, found, 1)
	assert.Equal(t, 1, omitted)
}

// overAfter is a context whose time is over once that is set.
type overAfter struct {
	context.Context
	is bool
}

func (c *overAfter) Err() error {
	if c.is {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

func TestAllPodsOfAWorkloadCountAndThoseThatWaitAreLookedAt(t *testing.T) {
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	objects := []runtime.Object{home1, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(31)), Selector: labels}}}
	for i := range 30 {
		objects = append(objects, podNamed(fmt.Sprintf("a-%02d", i), corev1.PodRunning))
	}
	g, client := on(t, append(objects, podNamed("z", corev1.PodPending))...)
	why := func() string {
		answer, err := g.Answer(t.Context(), "shop", cli.Reference{Kind: cli.Deployment, Name: "web"})
		require.NoError(t, err)
		return answer.Sentence
	}
	assert.True(t, strings.HasPrefix(why(), `1 of the 31 pods of deployment "web" wait: no scheduler has looked at pod "z" yet`), why())

	require.NoError(t, client.CoreV1().Pods("shop").Delete(t.Context(), "z", metav1.DeleteOptions{}))
	_, err := client.CoreV1().Pods("shop").Create(t.Context(), podNamed("z", corev1.PodRunning), metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, `all of the 31 pods of deployment "web" run`, why())

	getsOf(client, "a-00", apierrors.NewInternalError(assert.AnError))
	_, err = g.Answer(t.Context(), "shop", cli.Reference{Kind: cli.Deployment, Name: "web"})
	require.ErrorContains(t, err, "cannot get pod shop/a-00", "what cannot be read is not left out silently")
}

func TestAJobSaysWhatBecameOfIt(t *testing.T) {
	job := func(name string, change func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: batchv1.JobSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": name}}}}
		change(j)
		return j
	}
	ended := func(kind batchv1.JobConditionType, message string) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Message: message}}
		}
	}
	done := podNamed("well-1", corev1.PodSucceeded)
	done.Labels = map[string]string{"job": "well"}
	g, _ := on(t, done, job("well", ended(batchv1.JobComplete, "")), job("bad", ended(batchv1.JobFailed, "backoff limit")),
		job("held", func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }))
	for name, says := range map[string]string{
		"well": `job "well" has done its work`,
		"bad":  `job "bad" has failed: backoff limit`,
		"held": `job "held" is suspended, so it makes no pods: kubectl patch job held -n shop -p '{"spec":{"suspend":false}}' has it go on`,
	} {
		answer, err := g.Answer(t.Context(), "shop", cli.Reference{Kind: cli.Job, Name: name})
		require.NoError(t, err)
		assert.Equal(t, says, answer.Sentence)
		assert.Equal(t, name != "well", answer.Waiting, name)
	}
}

// unreached is the way to an API server that lists pods and does not reach them.
type unreached struct{ asked, listed int }

func (u *unreached) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/proxy/") {
		u.asked++
		return nil, context.DeadlineExceeded
	}
	u.listed++
	answer := httptest.NewRecorder()
	answer.Header().Set("Content-Type", "application/json")
	_, _ = answer.WriteString(`{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"namespace": "lodestone-system", "name": "extender-0"}}]}`)
	return answer.Result(), nil
}

func TestAnExtenderThatDoesNotAnswerIsAskedOnce(t *testing.T) {
	way := &unreached{}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://home", Transport: way})
	require.NoError(t, err)
	g := &Gatherer{Home: &cli.Cluster{Client: client}, Lodestone: "lodestone-system"}
	for range 5 {
		assert.Empty(t, g.extender(t.Context(), podNamed("web", corev1.PodPending)))
	}
	assert.Equal(t, unreached{asked: 1, listed: 1}, *way)
}

func TestAClassThatMayNotBeReadIsNotTakenForMissing(t *testing.T) {
	claim := func(name, class string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
	}
	g, client := on(t, claim("data", "lodestone"), claim("typo", "lodestne"))
	client.PrependReactor("get", "storageclasses", func(action clienttesting.Action) (bool, runtime.Object, error) {
		get, ok := action.(clienttesting.GetAction)
		return ok && get.GetName() == "lodestone", nil, apierrors.NewForbidden(corev1.Resource("storageclasses"), "lodestone", nil)
	})
	for range 2 { // the second answer is remembered
		data, err := g.Answer(t.Context(), "shop", cli.Reference{Kind: cli.Claim, Name: "data"})
		require.NoError(t, err)
		assert.Contains(t, data.Sentence, `claim "data" waits for a pod that uses it`)
	}
	typo, err := g.Answer(t.Context(), "shop", cli.Reference{Kind: cli.Claim, Name: "typo"})
	require.NoError(t, err)
	assert.Contains(t, typo.Sentence, `names storage class "lodestne", which does not exist`)
}
