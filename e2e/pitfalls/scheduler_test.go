package pitfalls

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/cert"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/filter"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// withExtender is the configuration of a kube-scheduler that asks without TLS.
var withExtender = fromDeploy("examples", "kube-scheduler-configuration.yaml")

// denied is what a client logs that lacks a right.
var denied = regexp.MustCompile(`.*is forbidden: User.*`)

// settings change a configuration to what the test bed needs.
type settings struct {
	// extender is the address of the extender.
	extender string
	// secure leaves TLS as it is; otherwise there is none.
	secure bool
	// kubeconfig is what kube-scheduler reaches the cluster with; all rights by
	// default.
	kubeconfig string
	// elect leaves leader election as it is; otherwise there is none.
	elect bool
	// allNodes has kube-scheduler look at all nodes for each pod.
	allNodes bool
	// gates are feature gates, "Name=true,...".
	gates string
	// newer takes kube-scheduler of the next Kubernetes.
	newer bool
}

// configuration returns a KubeSchedulerConfiguration with these settings; an empty
// one is the stock configuration.
func configuration(t *testing.T, content []byte, s settings) string {
	t.Helper()
	fields := map[string]any{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
	require.NoError(t, yaml.Unmarshal(content, &fields))
	fields["clientConnection"] = map[string]any{"kubeconfig": s.kubeconfig}
	if !s.elect {
		fields["leaderElection"] = map[string]any{"leaderElect": false}
	}
	if s.allNodes {
		fields["percentageOfNodesToScore"] = 100
	}
	if extenders, found := fields["extenders"].([]any); found {
		require.Len(t, extenders, 1)
		connect(t, extenders[0].(map[string]any), s.extender, s.secure)
	}
	changed, err := yaml.Marshal(fields)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	require.NoError(t, os.WriteFile(path, changed, 0o600))
	return path
}

// connect points what a configuration says of an extender at an address: with keys
// that exist, or without TLS.
func connect(t *testing.T, extender map[string]any, address string, secure bool) {
	t.Helper()
	keys, found := extender["tlsConfig"].(map[string]any)
	if !found || !secure {
		extender["urlPrefix"] = "http://" + address
		delete(extender, "tlsConfig")
		delete(extender, "enableHTTPS")
		return
	}
	extender["urlPrefix"] = "https://" + address
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	require.NoError(t, err)
	for field, content := range map[string][]byte{"caFile": certificate, "certFile": certificate, "keyFile": key} {
		path := filepath.Join(t.TempDir(), field)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		keys[field] = path
	}
}

// scheduler starts a kube-scheduler, waits until it is ready, and ends it after the
// test.
func scheduler(t *testing.T, content []byte, s settings) *testbed.Program {
	t.Helper()
	ctx := t.Context()
	if s.kubeconfig == "" {
		s.kubeconfig = bed.Kubeconfig()
	}
	command := schedulerCommand(t, s.newer)
	address, err := bed.ReserveAddress()
	require.NoError(t, err)
	_, port, _ := strings.Cut(address, ":")
	program, err := bed.StartProgram("scheduler-"+rand.String(5), command[0], append(command[1:],
		"--config="+configuration(t, content, s),
		"--authentication-kubeconfig="+s.kubeconfig, "--authorization-kubeconfig="+s.kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+t.TempDir(), "-v=2", "--feature-gates="+s.gates)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		if program.Running() {
			program.Kill()
		}
		output, err := program.Output()
		require.NoError(t, err)
		assert.Empty(t, denied.FindString(output), "the scheduler lacks a right")
		if t.Failed() {
			t.Log(tail(output))
		}
	})
	require.NoError(t, program.AwaitHTTP(ctx, "https://"+address+"/readyz"))
	return program
}

func schedulerCommand(t *testing.T, newer bool) []string {
	t.Helper()
	if newer {
		directory, err := built.NewerScheduler.Build(t.Context(), os.Stderr)
		require.NoError(t, err)
		return []string{filepath.Join(directory, "kube-scheduler")}
	}
	binary, err := testbed.Binary(t.Context(), os.Stderr)
	require.NoError(t, err)
	return []string{binary, "kube-scheduler"}
}

// scheduleWith starts a kube-scheduler with a configuration of deploy/.
func scheduleWith(t *testing.T, file, extender string) *testbed.Program {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return scheduler(t, content, settings{extender: extender})
}

func tail(output string) string {
	lines := strings.Split(output, "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// ask sends a call as kube-scheduler does, reads the answer into result and, like
// kube-scheduler, nothing after it. It reports whether the connection was used
// before.
func ask(t *testing.T, client *http.Client, url string, args, result any) (reused bool) {
	t.Helper()
	body, err := json.Marshal(args)
	require.NoError(t, err)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(connection httptrace.GotConnInfo) { reused = connection.Reused },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode, "the body of any other answer is thrown away")
	require.Positive(t, response.ContentLength, "an answer in chunks costs a connection")
	require.NoError(t, json.NewDecoder(response.Body).Decode(result))
	return reused
}

func TestAnswersKeepTheContract(t *testing.T) {
	at := address(t)
	runExtender(t, at, "lodestone-extender")
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	s := newShop(t, open)
	s.dataIn("there", west)
	s.dataIn("here", "home")
	nodes := append(slices.Clone(homeNodes), westNode, "unheard-of")
	calls, connections := 0, 0
	send := func(verb string, args, result any) {
		calls++
		if !ask(t, client, "http://"+at+"/"+verb, args, result) {
			connections++
		}
	}

	for name, test := range map[string]struct {
		claims  []string
		pass    []string
		refused filter.Reason
	}{
		"all nodes pass":         {pass: nodes, refused: filter.Accepted},
		"one node passes":        {claims: []string{"there"}, pass: []string{westNode}, refused: filter.DataElsewhere},
		"no node passes":         {claims: []string{"there", "here"}, refused: filter.DataInSeveralClusters},
		"the claim is not there": {claims: []string{"nowhere"}, pass: nodes},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("web", test.claims...)
			pod.Namespace = s.name
			args := extenderv1.ExtenderArgs{Pod: pod, NodeNames: &nodes}

			var filtered extenderv1.ExtenderFilterResult
			send("filter", args, &filtered)
			assert.Empty(t, filtered.Error)
			require.NotNil(t, filtered.NodeNames, "null says that no node passes, and nothing why")
			all := slices.Clone(*filtered.NodeNames)
			for _, failed := range []extenderv1.FailedNodesMap{filtered.FailedNodes, filtered.FailedAndUnresolvableNodes} {
				for node, reason := range failed {
					all = append(all, node)
					if node != "unheard-of" {
						assert.Equal(t, test.refused.Sentence(), reason, "reasons are counted by their exact text")
					}
				}
			}
			assert.ElementsMatch(t, nodes, all, "each node is listed once, and no other")
			for _, node := range test.pass {
				if node != "unheard-of" {
					assert.Contains(t, *filtered.NodeNames, node)
				}
			}

			var scores extenderv1.HostPriorityList
			send("prioritize", args, &scores)
			scored := map[string]bool{}
			for _, score := range scores {
				assert.Contains(t, nodes, score.Host)
				assert.False(t, scored[score.Host], "the scores of a node listed twice add up")
				scored[score.Host] = true
				assert.GreaterOrEqual(t, score.Score, extenderv1.MinExtenderPriority)
				assert.LessOrEqual(t, score.Score, extenderv1.MaxExtenderPriority)
			}

			victims := map[string]*extenderv1.MetaVictims{}
			for _, node := range nodes[:3] {
				victims[node] = &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{{UID: "1"}}}
			}
			var kept extenderv1.ExtenderPreemptionResult
			send("preempt", extenderv1.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: victims}, &kept)
			for _, node := range nodes[:3] {
				if slices.Contains(*filtered.NodeNames, node) {
					assert.Equal(t, victims[node], kept.NodeNameToMetaVictims[node])
				} else {
					assert.NotContains(t, kept.NodeNameToMetaVictims, node, "pods would be evicted in vain")
				}
			}
		})
	}
	assert.Equal(t, 1, connections, "of %d calls", calls)
}

func TestExtenderIsAskedForAllProfiles(t *testing.T) {
	at := address(t)
	content := []byte(`profiles: [{schedulerName: default-scheduler}, {schedulerName: other}]
extenders: [{urlPrefix: "", filterVerb: filter, nodeCacheCapable: true, ignorable: true}]`)
	program := scheduler(t, content, settings{extender: at})
	runExtender(t, at, "lodestone-extender")
	s := newShop(t, open)
	for _, profile := range []string{corev1.DefaultSchedulerName, "other"} {
		s.awayFromHome(profile)
		pod := newPod(profile, profile)
		pod.Spec.SchedulerName = profile
		s.make(pod)
		assert.Equal(t, westNode, s.awaitSelected(profile))
	}
	// Before Kubernetes 1.35 there is no opportunistic batching.
	if bed.Minor(t) >= 35 {
		output, err := program.Output()
		require.NoError(t, err)
		assert.Contains(t, output, "because it has extenders configured", "opportunistic batching is off")
	}
}

// crowd is so many nodes that kube-scheduler looks at only some of them for a pod.
const crowd = 300

// addCrowd adds nodes of the home cluster, until the test ends.
func addCrowd(t *testing.T) {
	t.Helper()
	testbed.Require(t)
	nodes := make([]fakekubelet.Node, crowd)
	for i := range nodes {
		nodes[i] = fakekubelet.Node{Name: fmt.Sprintf("crowd-%d", i), Labels: map[string]string{"crowd": "yes"}}
	}
	t.Cleanup(func() {
		assert.NoError(t, bed.Client().CoreV1().Nodes().DeleteCollection(context.Background(),
			*metav1.NewDeleteOptions(0), metav1.ListOptions{LabelSelector: "crowd=yes"}))
	})
	_, err := fakekubelet.Start(t.Context(), fakekubelet.Options{Config: bed.AdminConfig(), Nodes: nodes, LeasePeriod: 10 * time.Minute})
	require.NoError(t, err)
}

// candidates are the nodes that a stand-in of the extender was asked about for each
// pod.
type candidates struct {
	mu    sync.Mutex
	nodes map[string][]string
}

// ServeHTTP lets every node pass.
func (c *candidates) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var args extenderv1.ExtenderArgs
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Path != "/filter" {
		_, _ = w.Write([]byte("[]"))
		return
	}
	c.mu.Lock()
	c.nodes[args.Pod.Namespace+"/"+args.Pod.Name] = *args.NodeNames
	c.mu.Unlock()
	_ = json.NewEncoder(w).Encode(extenderv1.ExtenderFilterResult{NodeNames: args.NodeNames})
}

func (c *candidates) of(s *shop, pod string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[s.name+"/"+pod]
}

func TestDataIsFoundAmongMoreNodesThanKubeSchedulerLooksAt(t *testing.T) {
	addCrowd(t)
	at := address(t)
	asked := &candidates{nodes: map[string][]string{}}
	impostor(t, at, asked.ServeHTTP)
	scheduleWith(t, withExtender, at)

	s := newShop(t, open)
	s.dataIn("there", west)
	s.pod("plain")
	s.pod("remote", "there")
	s.awaitNode("plain")
	assert.Equal(t, westNode, s.awaitNode("remote"))
	assert.Less(t, len(asked.of(s, "plain")), crowd, "only some nodes are looked at")
	assert.Equal(t, []string{westNode}, asked.of(s, "remote"), "kube-scheduler itself heeds where data is, on all nodes")

	claim := newClaim("new")
	claim.Spec.StorageClassName = ptr.To(classOf(t, west))
	must.Create(t, bed.Client().CoreV1().PersistentVolumeClaims(s.name), claim)
	s.pod("unbound", "new")
	assert.Equal(t, westNode, s.awaitSelected("new"))
	assert.Equal(t, []string{westNode}, asked.of(s, "unbound"), "and what a class says itself")
}

// classOf makes a virtual class whose volumes belong in one cluster, in words that
// kube-scheduler understands.
func classOf(t *testing.T, cluster string) string {
	t.Helper()
	classes := bed.Client().StorageV1().StorageClasses()
	made := must.Create(t, classes, &storagev1.StorageClass{
		ObjectMeta:        metav1.ObjectMeta{GenerateName: "only-" + cluster + "-"},
		Provisioner:       keys.Driver,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: keys.Cluster, Values: []string{cluster}},
		}}},
	})
	t.Cleanup(func() { _ = classes.Delete(context.Background(), made.Name, metav1.DeleteOptions{}) })
	return made.Name
}

func TestExtendersOwnRulesFindTheirNodeWhereAllNodesAreLookedAt(t *testing.T) {
	addCrowd(t)
	at := address(t)
	content, err := os.ReadFile(withExtender)
	require.NoError(t, err)
	scheduler(t, content, settings{extender: at, allNodes: true})
	runExtender(t, at, "lodestone-extender")

	s := newShop(t, open)
	s.awayFromHome("new")
	s.pod("first", "new")
	assert.Equal(t, westNode, s.awaitSelected("new"))
}

// withMarker is the configuration with which the extender is asked about marked pods
// only.
var withMarker = fromDeploy("examples", "kube-scheduler-configuration-marked.yaml")

// needsPolicies skips a test where the API server serves none: that webhooks do the same is tested in e2e/webhook.
func needsPolicies(t *testing.T) {
	t.Helper()
	testbed.Require(t)
	served, err := bed.ServesPolicies()
	require.NoError(t, err)
	if !served {
		t.Skip("before Kubernetes 1.36 API servers serve no MutatingAdmissionPolicies")
	}
}

// mark applies the policy that marks pods, until the test ends.
func mark(t *testing.T) {
	t.Helper()
	needsPolicies(t)
	policy := fromDeploy("components", "managed-resources", "admission.yaml")
	must.Kubectl(t, bed, "", "apply", "--validate=strict", "-f", policy)
	probe := newShop(t)
	isMarked := func() bool {
		pod, err := bed.Client().CoreV1().Pods(probe.name).Create(context.Background(), newPod("probe", "data"), dryRun)
		return err == nil && marked(pod)
	}
	t.Cleanup(func() {
		must.Kubectl(t, bed, "", "delete", "-f", policy)
		require.Eventually(t, func() bool { return !isMarked() }, long, often)
	})
	// A policy takes hold, and ends, a moment after it is written or deleted.
	require.Eventually(t, isMarked, long, often)
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// admitted returns a pod as the API server would store it.
func (s *shop) admitted(pod *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	result, err := bed.Client().CoreV1().Pods(s.name).Create(s.t.Context(), pod, dryRun)
	require.NoError(s.t, err)
	return result
}

func marked(pod *corev1.Pod) bool {
	_, found := pod.Spec.Containers[0].Resources.Requests[keys.MarkerResource]
	return found
}

func TestPodsThatAreMarked(t *testing.T) {
	closed, opened := newShop(t), newShop(t, open)
	mark(t)
	one := resource.MustParse("1")
	for name, test := range map[string]struct {
		shop   *shop
		claims []string
		change func(*corev1.Pod)
		want   bool
	}{
		"a pod":                      {shop: closed},
		"a pod of an open namespace": {shop: opened, want: true},
		"a pod with a claim":         {shop: closed, claims: []string{"data"}, want: true},
		"a pod with an ephemeral claim": {shop: closed, want: true, change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimSpec()}}}}}
		}},
		"a pod with another volume": {shop: closed, change: func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}},
		"a pod that wants to be near data": {shop: closed, want: true, change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{keys.Near: "data"}
		}},
		"a pod of another scheduler": {shop: closed, claims: []string{"data"}, change: func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }},
		"a pod that names its node":  {shop: closed, claims: []string{"data"}, change: func(p *corev1.Pod) { p.Spec.NodeName = "home-1" }},
		"a pod with resources of its own": {shop: closed, claims: []string{"data"}, want: true, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: one}
		}},
		"a pod with limits only": {shop: closed, claims: []string{"data"}, want: true, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: one}
		}},
		"a pod with resources for all containers together": {shop: closed, claims: []string{"data"}, want: true, change: func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: one}}
		}},
		"a pod that asks for the marker itself": {shop: closed, claims: []string{"data"}, want: true, change: func(p *corev1.Pod) {
			five := corev1.ResourceList{keys.MarkerResource: resource.MustParse("5")}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: five, Limits: five}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod("pod", test.claims...)
			if test.change != nil {
				test.change(pod)
			}
			want := pod.DeepCopy()
			got := test.shop.admitted(pod)
			require.Equal(t, test.want, marked(got))
			if !test.want {
				return
			}
			container := got.Spec.Containers[0].Resources
			assert.True(t, one.Equal(container.Requests[keys.MarkerResource]))
			assert.True(t, one.Equal(container.Limits[keys.MarkerResource]))
			for resource := range want.Spec.Containers[0].Resources.Limits {
				assert.Contains(t, container.Limits, resource)
			}
			for resource := range want.Spec.Containers[0].Resources.Requests {
				assert.Contains(t, container.Requests, resource)
			}
		})
	}
	for _, namespace := range []string{"kube-system", system} {
		assert.False(t, marked((&shop{t: t, name: namespace}).admitted(restricted("pod", "data"))),
			"the cluster does not start without pods of %s", namespace)
	}
}

// TestPodsThatAreMarkedFindTheirNodeBeforeOthersCostNoCall has the configuration with which marking is begun: every pod is asked about.
func TestPodsThatAreMarkedFindTheirNodeBeforeOthersCostNoCall(t *testing.T) {
	at := address(t)
	mark(t)
	scheduleWith(t, withExtender, at)
	e := runExtender(t, at, "lodestone-extender")
	s := newShop(t, open)
	s.awayFromHome("new")
	require.True(t, marked(s.pod("marked", "new")))
	assert.Equal(t, westNode, s.awaitSelected("new"))
	asked := e.calls(t, "filter")
	assert.NotZero(t, asked)
	closed := newShop(t)
	closed.pod("other")
	closed.awaitNode("other")
	assert.Greater(t, e.calls(t, "filter"), asked)
}

func TestPodsThatAreNotMarkedCostNoCall(t *testing.T) {
	at := address(t)
	s := newShop(t)
	// Made before the policy, like all pods of a cluster that adopts it.
	s.dataIn("there", west)
	s.pod("older", "there")

	mark(t)
	scheduleWith(t, withMarker, at)
	e := runExtender(t, at, "lodestone-extender")
	assert.Equal(t, westNode, s.awaitNode("older"), "the volume itself says where its data is")
	for _, name := range []string{"a", "b", "c"} {
		s.pod(name)
		s.awaitNode(name)
	}
	assert.Zero(t, e.calls(t, "filter"))
	assert.Zero(t, e.calls(t, "prioritize"))

	opened := newShop(t, open)
	opened.awayFromHome("new")
	pod := opened.pod("marked", "new")
	require.True(t, marked(pod))
	assert.Equal(t, westNode, opened.awaitSelected("new"))
	assert.NotZero(t, e.calls(t, "filter"))

	near := newPod("near")
	near.Annotations = map[string]string{keys.Near: "there"}
	opened.dataIn("there", west)
	opened.make(near)
	assert.Equal(t, westNode, opened.awaitNode("near"))
	assert.NotZero(t, e.calls(t, "prioritize"))
}
