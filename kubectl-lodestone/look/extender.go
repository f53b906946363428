package look

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/why"
)

// extenderTimeout bounds one replica's answer: the sentence can do without.
const extenderTimeout = 3 * time.Second

// extenderPods selects the pods that answer /explain, extenderPort is where.
const (
	extenderPods = "app.kubernetes.io/name=lodestone,app.kubernetes.io/component in (extender,scheduler)"
	extenderPort = 8082
)

// explained is what a replica of the extender answers.
type explained struct {
	UID       string `json:"uid"`
	Decisions []struct {
		Time   time.Time     `json:"time"`
		Verb   string        `json:"verb"`
		Nodes  []why.Verdict `json:"nodes"`
		Scores []why.Mark    `json:"scores"`
	} `json:"decisions"`
}

// extender asks each replica of the extender, through the API server, what it
// said of a pod, and returns the latest. Each knows only what it was asked
// itself. A user who may not ask, or an extender that is not there, is no error.
func (g *Gatherer) extender(ctx context.Context, pod *corev1.Pod) why.Said {
	replicas, err := g.Home.Client.CoreV1().Pods(g.Lodestone).List(ctx, metav1.ListOptions{LabelSelector: extenderPods})
	if err != nil {
		return why.Said{}
	}
	var answers []explained
	for _, replica := range replicas.Items {
		short, cancel := context.WithTimeout(ctx, extenderTimeout)
		body, err := g.Home.Client.CoreV1().RESTClient().Get().
			Namespace(replica.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", replica.Name, extenderPort)).
			SubResource("proxy").Suffix("explain").
			Param("namespace", pod.Namespace).Param("pod", pod.Name).DoRaw(short)
		cancel()
		var answer explained
		if err == nil && json.Unmarshal(body, &answer) == nil {
			answers = append(answers, answer)
		}
	}
	return lastSaid(string(pod.UID), answers)
}

// lastSaid returns what was said last of just this pod. Scores from before the
// last filter decided nothing any more: after that one there was no choice left.
func lastSaid(uid string, answers []explained) why.Said {
	var said why.Said
	var filtered, scored time.Time
	for _, answer := range answers {
		if answer.UID != uid {
			continue
		}
		for _, decision := range answer.Decisions {
			switch {
			case decision.Verb == "filter" && decision.Time.After(filtered):
				filtered, said.Verdicts = decision.Time, decision.Nodes
			case decision.Verb == "prioritize" && decision.Time.After(scored):
				scored, said.Marks = decision.Time, decision.Scores
			}
		}
	}
	if scored.Before(filtered) {
		said.Marks = nil
	}
	return said
}
