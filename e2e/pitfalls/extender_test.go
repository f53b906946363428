package pitfalls

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// address returns an address for an extender, where nobody listens yet.
func address(t *testing.T) string {
	t.Helper()
	testbed.Require(t)
	reserved, err := bed.ReserveAddress()
	require.NoError(t, err)
	return reserved
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	return listener
}

// extender is a running extender.
type extender struct {
	status string // the URL of its probes and metrics
	stop   func()
}

// runExtender runs the extender with the rights of a ServiceAccount and waits until
// it is ready. It ends with the test, if not before. tune changes its configuration.
func runExtender(t *testing.T, address, serviceAccount string, tune ...func(*app.Config)) *extender {
	t.Helper()
	home, err := bed.ServiceAccountConfig(t.Context(), system, serviceAccount)
	require.NoError(t, err)
	status := listen(t, "127.0.0.1:0")
	verbs := listen(t, address)
	ctx, cancel := context.WithCancel(context.Background())
	config := &app.Config{Home: home, Verbs: verbs, Status: status, MaxStaleness: time.Minute}
	for _, change := range tune {
		change(config)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, config) }()
	stopped := false
	e := &extender{status: "http://" + status.Addr().String(), stop: func() {
		if !stopped {
			stopped = true
			cancel()
			assert.NoError(t, <-ended)
		}
	}}
	t.Cleanup(e.stop)
	require.Eventually(t, func() bool {
		code, _ := get(t, e.status+"/readyz")
		return code == http.StatusOK
	}, long, often, "the extender must become ready")
	return e
}

// calls returns how many calls of a verb have been answered.
func (e *extender) calls(t *testing.T, verb string) int {
	t.Helper()
	code, metrics := get(t, e.status+"/metrics")
	require.Equal(t, http.StatusOK, code)
	calls := 0
	for line := range strings.Lines(metrics) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if strings.HasPrefix(series, "lodestone_extender_requests_total{") && strings.Contains(series, `verb="`+verb+`"`) {
			count, err := strconv.Atoi(value)
			require.NoError(t, err)
			calls += count
		}
	}
	return calls
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// impostor answers in the extender's stead until the test ends or stop is called.
func impostor(t *testing.T, address string, handler http.HandlerFunc) (stop func()) {
	t.Helper()
	listener := listen(t, address)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	stop = func() {
		_ = server.Close()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// Whatever is wrong with the extender: data is not left, pods without data are
// scheduled, and as soon as the extender is well it is heard.
func TestSchedulingGoesOnWhateverTheExtenderDoes(t *testing.T) {
	for name, broken := range map[string]http.HandlerFunc{
		"it is stopped": nil,
		"it hangs": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		},
		"it answers with an error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusInternalServerError)
		},
		"it answers with nonsense": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"NodeNames": "home-1"`))
		},
		"it hangs up": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := address(t)
			mend := func() {}
			if broken != nil {
				mend = impostor(t, at, broken)
			}
			scheduleWith(t, withExtender, at)
			s := newShop(t, open)
			s.dataIn("there", west)
			s.dataIn("here", "home")
			s.pod("remote", "there")
			s.pod("local", "here")
			s.pod("plain")
			assert.Equal(t, westNode, s.awaitNode("remote"))
			assert.True(t, s.atHome("local"))
			s.awaitNode("plain")

			mend()
			runExtender(t, at, "lodestone-extender")
			s.awayFromHome("new")
			s.pod("later", "new")
			assert.Equal(t, westNode, s.awaitSelected("new"))
		})
	}
}

// No extender runs, as when a cluster starts: its own pods do not wait for it.
func TestExtendersOwnPodsAreScheduledWhileThereIsNone(t *testing.T) {
	scheduleWith(t, withExtender, address(t))
	pods := bed.Client().CoreV1().Pods(system)
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=extender"}
	require.NoError(t, pods.DeleteCollection(t.Context(), *metav1.NewDeleteOptions(0), ours))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		found, err := pods.List(t.Context(), ours)
		require.NoError(c, err)
		require.Len(c, found.Items, 2)
		for _, pod := range found.Items {
			assert.Nil(c, pod.DeletionTimestamp)
			assert.Contains(c, homeNodes, pod.Spec.NodeName)
		}
	}, long, often)
}

// Neither the extender nor kube-scheduler is started anew.
func TestAllGoesOnAfterARestartOfTheAPIServer(t *testing.T) {
	at := address(t)
	scheduleWith(t, withExtender, at)
	runExtender(t, at, "lodestone-extender")
	before := newShop(t, open)
	before.awayFromHome("before")
	before.pod("before", "before")
	assert.Equal(t, westNode, before.awaitSelected("before"))

	require.NoError(t, bed.StopAPIServer(t.Context()))
	require.NoError(t, bed.StartAPIServer(t.Context()))

	s := newShop(t, open)
	s.dataIn("there", west)
	s.pod("remote", "there")
	s.pod("plain")
	s.awayFromHome("after")
	s.pod("after", "after")
	assert.Equal(t, westNode, s.awaitNode("remote"))
	s.awaitNode("plain")
	assert.Equal(t, westNode, s.awaitSelected("after"))
}

const (
	secondScheduler = "lodestone-scheduler"

	// chosen is the label of namespaces whose pods go to the second scheduler.
	chosen = keys.Scheduler + "=" + keys.SchedulerEnabled
)

// replica is one pod of the second scheduler, as two processes of this machine.
type replica struct {
	scheduler *testbed.Program
	*extender
}

// secondReplica runs what a pod of the component would, with the configuration of
// its ConfigMap and the rights of its ServiceAccount.
func secondReplica(t *testing.T) *replica {
	t.Helper()
	at := address(t)
	content, err := bed.ServiceAccountKubeconfig(t.Context(), system, secondScheduler)
	require.NoError(t, err)
	_, port, _ := strings.Cut(at, ":")
	kubeconfig, err := bed.WriteFile("second-"+port+".kubeconfig", content)
	require.NoError(t, err)
	return &replica{
		extender:  runExtender(t, at, secondScheduler),
		scheduler: scheduler(t, deployedConfiguration(t), settings{extender: at, kubeconfig: kubeconfig, elect: true}),
	}
}

// deployedConfiguration returns the configuration as the cluster's ConfigMap holds it.
func deployedConfiguration(t *testing.T) []byte {
	t.Helper()
	pod := must.Get(t, bed.Client().AppsV1().Deployments(system), secondScheduler)
	for _, volume := range pod.Spec.Template.Spec.Volumes {
		if volume.ConfigMap != nil {
			found := must.Get(t, bed.Client().CoreV1().ConfigMaps(system), volume.ConfigMap.Name)
			return []byte(found.Data["scheduler-configuration.yaml"])
		}
	}
	t.Fatal("the second scheduler mounts no configuration")
	return nil
}

// holder returns which replica leads.
func holder(t *testing.T) string {
	t.Helper()
	lease, err := bed.Client().CoordinationV1().Leases(system).Get(t.Context(), secondScheduler, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// The provider's scheduler is a stock one that knows nothing of the extender.
func TestSecondSchedulerOfTwoReplicas(t *testing.T) {
	testbed.NotInShort(t)
	testbed.Require(t)
	kustomize(t.Context(), t, "overlays/managed")
	t.Cleanup(func() { kustomize(context.Background(), t, "base") })
	provider := scheduler(t, nil, settings{})
	first := secondReplica(t)
	require.Eventually(t, func() bool { return holder(t) != "" }, long, often)
	second := secondReplica(t)

	ours := newShop(t, open, chosen)
	ours.awaitSecond()
	t.Run("pods of labelled namespaces land where the extender says", func(t *testing.T) {
		ours.awayFromHome("new")
		pod := ours.pod("web", "new")
		assert.Equal(t, secondScheduler, pod.Spec.SchedulerName)
		assert.Equal(t, westNode, ours.awaitSelected("new"))
		ours.pod("plain")
		ours.awaitNode("plain")
		assert.Equal(t, secondScheduler, ours.scheduledBy("plain"))
	})
	t.Run("pods of other namespaces stay with the provider's scheduler", func(t *testing.T) {
		calls := first.calls(t, "filter") + second.calls(t, "filter")
		theirs := newShop(t)
		assert.Equal(t, corev1.DefaultSchedulerName, theirs.pod("plain").Spec.SchedulerName)
		theirs.awaitNode("plain")
		assert.Equal(t, corev1.DefaultSchedulerName, theirs.scheduledBy("plain"))
		assert.Equal(t, calls, first.calls(t, "filter")+second.calls(t, "filter"))
	})
	t.Run("its own pods do not wait for it", func(t *testing.T) {
		pods := must.List(t, bed.Client().CoreV1().Pods(system), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=scheduler"})
		require.NotEmpty(t, pods.Items)
		for _, pod := range pods.Items {
			assert.Contains(t, homeNodes, (&shop{t: t, name: system}).awaitNode(pod.Name))
		}
	})
	t.Run("the other replica takes over", func(t *testing.T) {
		before := holder(t)
		first.scheduler.Kill()
		first.stop()
		ours.awayFromHome("later")
		ours.pod("later", "later")
		assert.Equal(t, westNode, ours.awaitSelected("later"))
		assert.NotEqual(t, before, holder(t))
		assert.NotZero(t, second.calls(t, "filter"))
	})
	t.Run("the provider's scheduler leaves them alone", func(t *testing.T) {
		second.scheduler.Kill()
		ours.pod("orphan")
		theirs := newShop(t)
		theirs.pod("plain")
		theirs.awaitNode("plain")
		waiting := must.Get(t, bed.Client().CoreV1().Pods(ours.name), "orphan")
		assert.Empty(t, waiting.Spec.NodeName)
		assert.True(t, provider.Running())
	})
}

func kustomize(ctx context.Context, t *testing.T, directory string) {
	t.Helper()
	folder, err := bed.Kustomization(directory)
	require.NoError(t, err)
	_, err = bed.Kubectl(ctx, "", "apply", "--validate=strict", "-k", folder)
	require.NoError(t, err)
}

// awaitSecond waits until the policy and the namespace's label are in force.
func (s *shop) awaitSecond() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.admitted(newPod("probe")).Spec.SchedulerName == secondScheduler }, long, often)
}

// scheduledBy returns the name of the scheduler that bound the pod.
func (s *shop) scheduledBy(pod string) string {
	s.t.Helper()
	scheduler := ""
	require.Eventually(s.t, func() bool {
		events, err := bed.Client().CoreV1().Events(s.name).List(s.t.Context(), metav1.ListOptions{
			FieldSelector: "reason=Scheduled,involvedObject.name=" + pod,
		})
		if err != nil || len(events.Items) == 0 {
			return false
		}
		scheduler = events.Items[0].ReportingController
		return true
	}, long, often)
	return scheduler
}

func TestPodsThatGoToTheSecondScheduler(t *testing.T) {
	needsPolicies(t)
	ours, theirs := newShop(t, chosen), newShop(t)
	policy := fromDeploy("components", "second-scheduler", "admission.yaml")
	must.Kubectl(t, bed, "", "apply", "--validate=strict", "-f", policy)
	ours.awaitSecond()
	for name, test := range map[string]struct {
		shop   *shop
		change func(*corev1.Pod)
		want   string
	}{
		"a pod":                      {shop: ours, want: secondScheduler},
		"a pod of another namespace": {shop: theirs, want: corev1.DefaultSchedulerName},
		"a pod that names a scheduler": {shop: ours, want: "other", change: func(p *corev1.Pod) {
			p.Spec.SchedulerName = "other"
		}},
		"a pod that names its node": {shop: ours, want: corev1.DefaultSchedulerName, change: func(p *corev1.Pod) {
			p.Spec.NodeName = "home-1"
		}},
		"a pod of a DaemonSet": {shop: ours, want: corev1.DefaultSchedulerName, change: func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agents", UID: "1",
				Controller: ptr.To(true)}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("pod")
			if test.change != nil {
				test.change(pod)
			}
			assert.Equal(t, test.want, test.shop.admitted(pod).Spec.SchedulerName)
		})
	}
	for _, namespace := range []string{"kube-system", system} {
		must.Kubectl(t, bed, "", "label", "namespace", namespace, chosen)
		assert.Equal(t, corev1.DefaultSchedulerName, (&shop{t: t, name: namespace}).admitted(restricted("pod")).Spec.SchedulerName,
			"whatever the label of %s says", namespace)
	}
}
