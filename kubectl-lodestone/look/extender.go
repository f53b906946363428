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
		Time  time.Time     `json:"time"`
		Verb  string        `json:"verb"`
		Nodes []why.Verdict `json:"nodes"`
	} `json:"decisions"`
}

// extender asks each replica of the extender, through the API server, what it
// said of a pod, and returns the latest. Each knows only what it was asked
// itself. A user who may not ask, or an extender that is not there, is no error.
func (g *Gatherer) extender(ctx context.Context, pod *corev1.Pod) []why.Verdict {
	replicas, err := g.Home.Client.CoreV1().Pods(g.Lodestone).List(ctx, metav1.ListOptions{LabelSelector: extenderPods})
	if err != nil {
		return nil
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

// lastSaid returns what filter said last of just this pod.
func lastSaid(uid string, answers []explained) []why.Verdict {
	var last []why.Verdict
	var at time.Time
	for _, answer := range answers {
		if answer.UID != uid {
			continue
		}
		for _, decision := range answer.Decisions {
			if decision.Verb == "filter" && decision.Time.After(at) {
				at, last = decision.Time, decision.Nodes
			}
		}
	}
	return last
}
