package why

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestADaemonSetIsNotScaled(t *testing.T) {
	answer := Workload{Kind: "daemonset", Name: "agent", Namespace: "logs"}.Of(setting())
	assert.Equal(t, `daemonset "agent" is to have no pods: no node is one that its node selector and affinity ask for, and whose taints it `+
		`tolerates`, answer.Sentence)
	assert.False(t, answer.Waiting)
}

func TestWhyAWorkloadWaits(t *testing.T) {
	runs := func(name string) Pod {
		return Pod{Pod: pod(on("home-1"), func(p *corev1.Pod) { p.Name, p.Status.Phase = name, corev1.PodRunning })}
	}
	full := func(name string) Pod {
		return Pod{Pod: pod(unfit("0/1 nodes are available: 1 Insufficient cpu."), func(p *corev1.Pod) { p.Name = name })}
	}
	gated := func(name string) Pod {
		return Pod{Pod: pod(func(p *corev1.Pod) { p.Name, p.Spec.SchedulingGates = name, []corev1.PodSchedulingGate{{Name: "x/y"}} })}
	}
	for name, row := range map[string]struct {
		workload Workload
		want     string
		waits    bool
	}{
		"none is wanted": {Workload{},
			`deployment "web" is to have no pods: kubectl scale deployment web -n shop --replicas=1 gives it one`, false},
		"none is made yet": {Workload{Wanted: 1},
			`deployment "web" has no pods yet: if that lasts, kubectl describe deployment web -n shop says more`, true},
		"none can be made": {Workload{Wanted: 1, Events: []corev1.Event{event("FailedCreate", "exceeded quota: few", time.Minute)}},
			`deployment "web" has no pods, because they cannot be made: exceeded quota: few`, true},
		"none could be made long ago": {Workload{Wanted: 1, Events: []corev1.Event{event("FailedCreate", "exceeded quota: few", time.Hour)}},
			`deployment "web" has no pods yet: if that lasts, kubectl describe deployment web -n shop says more`, true},
		"no more can be made": {Workload{Wanted: 2, Problems: []string{"exceeded quota: few"}, Pods: []Pod{runs("web-1")}},
			`deployment "web" has 1 of 2 pods, and no more can be made: exceeded quota: few`, true},
		"all run":  {Workload{Wanted: 2, Pods: []Pod{runs("web-1"), runs("web-2")}}, `all of the 2 pods of deployment "web" run`, false},
		"one runs": {Workload{Wanted: 1, Pods: []Pod{runs("web-1")}}, `the pod of deployment "web" runs: pod "web-1" runs on node "home-1"`, false},
		"one of one waits": {Workload{Wanted: 1, Pods: []Pod{full("web-1")}},
			`pod "web-1" fits no node: of 1 node, 1 has too little cpu left; free some, or have the pod ask for less`, true},
		"two of three wait, for the same": {Workload{Wanted: 3, Pods: []Pod{runs("web-1"), full("web-2"), full("web-3")}},
			`2 of the 3 pods of deployment "web" wait: pod "web-2" fits no node: of 1 node, 1 has too little cpu left; free some, or have the pod ask ` +
				`for less`, true},
		"they wait for different things": {Workload{Wanted: 2, Paused: true, Pods: []Pod{full("web-2"), gated("web-3")}},
			`2 of the 2 pods of deployment "web" wait: pod "web-2" fits no node: of 1 node, 1 has too little cpu left; free some, or have the pod ask ` +
				`for less; for other reasons: web-3; its rollout is paused (kubectl rollout resume deployment web -n shop)`, true},
		"they are made one after another": {Workload{Wanted: 3, Pods: []Pod{runs("web-1")}},
			`deployment "web" has 1 of 3 pods: the others are made one after another, as those before them run`, true},
		"there are more than were looked at": {Workload{Wanted: 25, Has: 25, Pods: []Pod{runs("web-1"), runs("web-2")}},
			`all of the 25 pods of deployment "web" run`, false},
		"more may wait than were looked at": {Workload{Wanted: 25, Has: 25, Pods: []Pod{full("web-1"), full("web-2")}},
			`at least 2 of the 25 pods of deployment "web" wait: pod "web-1" fits no node: of 1 node, 1 has too little cpu left; free some, or have ` +
				`the pod ask for less`, true},
		"a ReplicaSet of a Deployment wants none": {Workload{Owner: "deployment/web"},
			`deployment "web" is to have no pods: deployment/web decides that`, false},
		"a Job has done its work": {Workload{Wanted: -1, Done: true}, `deployment "web" has done its work`, false},
		"a Job has failed": {Workload{Wanted: -1, Failed: "Job has reached the specified backoff limit", Pods: []Pod{{Pod: pod(
			func(p *corev1.Pod) { p.Status.Phase, p.Status.Message = corev1.PodFailed, "it was evicted" })}}},
			`deployment "web" has failed: Job has reached the specified backoff limit; pod "web-1" has failed: it was evicted`, true},
		"a Job has failed, and its pods are gone": {Workload{Wanted: -1, Failed: "Job was active longer than specified deadline"},
			`deployment "web" has failed: Job was active longer than specified deadline`, true},
		"a Job is suspended": {Workload{Wanted: -1, Suspended: true},
			`deployment "web" is suspended, so it makes no pods: kubectl patch job web -n shop -p '{"spec":{"suspend":false}}' has it go on`, true},
		"it is being deleted": {Workload{Wanted: 3, Deleted: true}, `deployment "web" is being deleted`, true},
	} {
		w := row.workload
		w.Kind, w.Name, w.Namespace = "deployment", "web", "shop"
		answer := w.Of(setting())
		assert.Equal(t, row.want, answer.Sentence, name)
		assert.Equal(t, row.waits, answer.Waiting, name)
		if len(w.Pods) > 1 {
			assert.Len(t, answer.Facts, len(w.Pods), name)
		}
	}
}
