package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// unscheduled says why a pod has no node.
func (p Pod) unscheduled(s Setting) Answer {
	pod := p.Pod
	if len(pod.Spec.SchedulingGates) > 0 {
		gate := pod.Spec.SchedulingGates[0].Name
		if gate == keys.MovingGate {
			return waits("pod %q is held back by scheduling gate %q while the volume of a claim of it is moved: kubectl lodestone move status -n %s says how far that is", pod.Name, gate, pod.Namespace)
		}
		return waits("pod %q is held back by scheduling gate %q: whoever set it removes it", pod.Name, gate)
	}
	for _, claim := range p.Claims {
		c := claim.Claim
		switch {
		case c == nil, c.DeletionTimestamp != nil, c.Status.Phase == corev1.ClaimLost:
			return waits("pod %q has no node, for %s", pod.Name, claim.judge(s).Sentence)
		}
	}
	if answer, ok := p.byData(s); ok {
		return answer
	}
	for _, claim := range p.Claims {
		if claim.Claim.Status.Phase == corev1.ClaimBound || !virtualclass.Is(claim.Class) && claim.Class != nil {
			continue
		}
		answer := claim.judge(s)
		_, refused := newestRefusal(claim.Claim, s.Now)
		event := latest(claim.Events, stuck)
		switch {
		case claim.Class == nil, refused, event != nil && s.Now.Sub(when(*event)) < memory, claim.Claim.Annotations[keys.SelectedNode] != "":
			return waits("pod %q has no node yet, for %s", pod.Name, answer.Sentence)
		}
	}
	if wanted := wanted(pod); wanted != "" {
		if reason := p.barred(s, wanted); reason != "" {
			return waits("pod %q is to run in %s, but %s", pod.Name, place(wanted), reason)
		}
	}
	if message := scheduler(pod); message != "" {
		return waits("pod %q fits no node: %s", pod.Name, message)
	}
	return waits("no scheduler has looked at pod %q yet: see whether scheduler %q runs", pod.Name, pod.Spec.SchedulerName)
}

// scheduler returns what kube-scheduler said last.
func scheduler(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return first(c.Message, c.Reason)
		}
	}
	return ""
}

// byData says why a pod cannot be where its data is.
func (p Pod) byData(s Setting) (Answer, bool) {
	pod := p.Pod
	holders := map[string]string{}
	var clusters []string
	for _, claim := range p.Claims {
		cluster := dataIn(claim.Volume)
		if claim.Claim.Status.Phase != corev1.ClaimBound || cluster == "" {
			continue
		}
		if holders[cluster] == "" {
			clusters = append(clusters, cluster)
			holders[cluster] = claim.Name
		}
	}
	switch {
	case len(clusters) == 0:
		return Answer{}, false
	case len(clusters) > 1:
		slices.Sort(clusters)
		return waits("pod %q has no node, for its data is in different clusters: claim %q in %s, claim %q in %s; use claims of one cluster", pod.Name,
			holders[clusters[0]], place(clusters[0]), holders[clusters[1]], place(clusters[1])), true
	}
	cluster := clusters[0]
	if cluster != keys.Home {
		if reason := p.barred(s, cluster); reason != "" {
			return waits("pod %q can run only in %s, where the data of claim %q is, but %s", pod.Name, place(cluster), holders[cluster], reason), true
		}
	}
	if message := scheduler(pod); message != "" {
		return waits("pod %q can run only in %s, where the data of claim %q is, and no node of it takes the pod: %s", pod.Name, place(cluster), holders[cluster], message), true
	}
	return Answer{}, false
}

// barred says why no node that stands for a remote cluster takes a pod, apart
// from room; empty if nothing bars it.
func (p Pod) barred(s Setting, cluster string) string {
	if s.Namespace != nil && !namespaces.MayUse(s.Namespace, cluster) {
		if s.Namespace.Labels[keys.Offload] != keys.OffloadEnabled {
			return fmt.Sprintf("namespace %q is not open to remote clusters: kubectl label namespace %s %s=%s", s.Namespace.Name, s.Namespace.Name, keys.Offload, keys.OffloadEnabled)
		}
		return fmt.Sprintf("namespace %q is not open to it: its annotation %s lists %q; add the cluster there", s.Namespace.Name, keys.OffloadClusters, s.Namespace.Annotations[keys.OffloadClusters])
	}
	if s.NodesUnknown {
		return ""
	}
	nodes := s.standing(cluster)
	if len(nodes) == 0 {
		return fmt.Sprintf("no node stands for it: %s", first(s.unusable(cluster), "see whether the program for virtual nodes runs (kubectl get pods -n lodestone-system)"))
	}
	var reasons []string
	for i := range nodes {
		reason := p.refuses(&nodes[i])
		if reason == "" {
			return ""
		}
		reasons = append(reasons, reason)
	}
	return reasons[0]
}

// refuses says why a node takes no such pod, apart from room.
func (p Pod) refuses(node *corev1.Node) string {
	if problem := down(node); problem != "" {
		return fmt.Sprintf("it does not answer: %s", strings.TrimSuffix(problem, "."))
	}
	if node.Spec.Unschedulable {
		return fmt.Sprintf("its node %q is cordoned: kubectl uncordon %s", node.Name, node.Name)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || tolerates(p.Pod, taint) {
			continue
		}
		if taint.Key == keys.RemoteTaint {
			return fmt.Sprintf("the pod does not tolerate taint %s=%s of node %q: pods that are made after their namespace was opened do, so delete the pod and let it be made anew", taint.Key, taint.Value, node.Name)
		}
		return fmt.Sprintf("the pod does not tolerate taint %s of node %q", taint.ToString(), node.Name)
	}
	return ""
}

func tolerates(pod *corev1.Pod, taint corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		return t.Operator == corev1.TolerationOpExists || t.Key != "" && t.Value == taint.Value
	})
}

// wanted returns the one remote cluster that a pod asks for by itself, empty if
// it does not ask for just one.
func wanted(pod *corev1.Pod) string {
	if cluster := pod.Spec.NodeSelector[keys.Cluster]; cluster != "" {
		return cluster
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	terms := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 {
		return ""
	}
	for _, e := range terms[0].MatchExpressions {
		if e.Key == keys.Cluster && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}
