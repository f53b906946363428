package replicas

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
)

// database is a pod with a sidecar, whose second container mounts claim data.
func database(change ...func(*corev1.Pod)) *corev1.Pod {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
			Containers: []corev1.Container{{Name: "proxy"}, {Name: "db", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "proxy", State: running}, {Name: "db", State: running}}},
	}
	for _, one := range change {
		one(pod)
	}
	return pod
}

func TestWhatRunsInAPodCanBeFrozen(t *testing.T) {
	for name, row := range map[string]struct {
		pod             *corev1.Pod
		wanted          string
		container, says string
	}{
		"the first container that mounts the claim": {pod: database(), container: "db"},
		"one that is named":                         {pod: database(), wanted: "proxy", container: "proxy"},
		"one that mounts it as a device": {pod: database(func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v"}}
		}), container: "proxy"},
		"none of that name": {pod: database(), wanted: "web", says: "has no container web: name another in spec.hooks.container"},
		"none mounts it": {pod: database(func(p *corev1.Pod) { p.Spec.Containers[1].VolumeMounts = nil }),
			says: "has no container that mounts the claim"},
		"it is ending": {pod: database(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), says: "is ending"},
		"it is starting": {pod: database(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }),
			says: "does not run yet"},
		"an init container may write": {pod: database(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), says: "does not run yet"},
		"its container crashes": {pod: database(func(p *corev1.Pod) { p.Status.ContainerStatuses[1].State = corev1.ContainerState{} }),
			says: "has container db, which does not run"},
	} {
		t.Run(name, func(t *testing.T) {
			container, why := freezable(row.pod, row.wanted, []string{"wal", "data"})
			assert.Contains(t, why, row.says)
			assert.Equal(t, row.says == "", why == "", why)
			assert.Equal(t, row.container, container)
		})
	}
}

func TestAPodIsNotTheSameAfterAContainerRestarted(t *testing.T) {
	was := stateOf(database())
	assert.Equal(t, was, stateOf(database()))
	assert.Equal(t, was, stateOf(database(func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Ready = true })),
		"that it is ready says nothing")
	for name, change := range map[string]func(*corev1.Pod){
		"one restarted":       func(p *corev1.Pod) { p.Status.ContainerStatuses[1].RestartCount++ },
		"another one runs":    func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://b" },
		"one ended":           func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} },
		"somebody looks into": func(p *corev1.Pod) { p.Status.EphemeralContainerStatuses = p.Status.ContainerStatuses[:1] },
	} {
		assert.NotEqual(t, was, stateOf(database(change)), name)
	}
}

func TestWhatACommandSaysIsReadToItsEndAndCutOff(t *testing.T) {
	said := &output{}
	for range 100 {
		n, err := said.Write([]byte("a\033[31m\nb "))
		assert.Equal(t, 9, n)
		assert.NoError(t, err)
	}
	text := said.text()
	assert.LessOrEqual(t, len(text), mostOutput)
	assert.NotContains(t, text, "\033")
	assert.NotContains(t, text, "\n")
	assert.True(t, strings.HasPrefix(text, "a"), text)
}

// TestPodsAreThawedThoughTheRecordCannotBeWritten has an API server that takes no writes of records.
func TestPodsAreThawedThoughTheRecordCannotBeWritten(t *testing.T) {
	for name, row := range map[string]struct {
		stage record.Stage
		next  func(*record.Record) *record.Record
		calls bool
	}{
		"the snapshot was taken": {record.Cut, func(r *record.Record) *record.Record { return r.Enter(record.Thaw, time.Now()) }, true},
		"nothing is to be thawed yet": {record.Freezing, func(r *record.Record) *record.Record { return r.Enter(record.Cut, time.Now()) },
			false},
		"it is being thawed": {record.Thaw, func(r *record.Record) *record.Record { return r.Enter(record.Thaw, time.Now()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var commands []string
			server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
				if strings.HasSuffix(request.URL.Path, "/namespaces/shop/pods/db-0/exec") {
					mu.Lock()
					defer mu.Unlock()
					commands = append(commands, strings.Join(request.URL.Query()["command"], " "))
				}
				http.Error(response, "no writes now", http.StatusInternalServerError)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			client, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			c := &Controller{Config: Config{Client: client, Home: config, Namespace: "lodestone-system", Records: NewRecords()}}
			r := &record.Record{UID: "r1", Namespace: "shop", Epoch: 1, Point: &record.Point{Number: 1, Stage: row.stage,
				Freeze: &record.Freeze{Thaw: []string{"rm", "-f", "/frozen"}, Limit: time.Minute,
					Pods: []record.FrozenPod{{Name: "db-0", UID: "p1", Container: "db"}}}}}
			w := &activeReplica{record: &stored{r, "1"}, hold: decide.Holds, holding: true}
			require.Error(t, c.act(t.Context(), w, decide.Observation{Record: r}, decide.Save{Record: row.next(r)}))
			if !row.calls {
				assert.Empty(t, commands)
				assert.Equal(t, decide.Holds, w.hold)
				return
			}
			require.NotEmpty(t, commands, "thaw is called all the same")
			assert.Equal(t, "rm -f /frozen", commands[0])
			assert.Equal(t, decide.Unsaved, w.hold, "it failed, and no snapshot is of a frozen moment any more")
			assert.True(t, w.holding)
		})
	}
}
