package daemonsets

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// requirement keeps pods off virtual nodes. The policy in deploy/components/virtual-node adds the
// same one.
var requirement = corev1.NodeSelectorRequirement{Key: keys.VirtualNodeRole, Operator: corev1.NodeSelectorOpDoesNotExist}

// example is the virtual node that DaemonSets are judged by while there is none.
var example = corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
	keys.Cluster: "example", keys.VirtualNodeRole: "", "type": "virtual-kubelet",
	corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
}}}

// WantsVirtualNodes reports whether a DaemonSet wants a pod on one of the virtual nodes: it tolerates
// their taint, and neither its node selector nor its affinity excludes all of them.
func WantsVirtualNodes(set *appsv1.DaemonSet, virtual []corev1.Node) bool {
	spec := set.Spec.Template.Spec
	if spec.NodeName != "" || !slices.ContainsFunc(spec.Tolerations, toleratesRemote) {
		return false
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: spec})
	if len(virtual) == 0 {
		virtual = []corev1.Node{example}
	}
	return slices.ContainsFunc(virtual, func(node corev1.Node) bool {
		// The DaemonSet controller takes an affinity that cannot be read for one that excludes the node.
		matches, err := affinity.Match(&node)
		return err == nil && matches
	})
}

// toleratesRemote reports whether a toleration is for the taint of a virtual node.
func toleratesRemote(t corev1.Toleration) bool {
	return (t.Key == "" || t.Key == keys.RemoteTaint) && (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
}

// Wanting returns the DaemonSets, as namespace/name, that want a pod on one of the virtual nodes among
// nodes; none if there is no virtual node.
func Wanting(sets []appsv1.DaemonSet, nodes []corev1.Node) []string {
	virtual := slices.DeleteFunc(slices.Clone(nodes), func(node corev1.Node) bool {
		_, ours := node.Labels[keys.VirtualNodeRole]
		return !ours
	})
	var names []string
	for _, set := range sets {
		if len(virtual) > 0 && WantsVirtualNodes(&set, virtual) {
			names = append(names, set.Namespace+"/"+set.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Advice says what to do about the DaemonSets that Wanting returned.
func Advice(names []string) string {
	return fmt.Sprintf("pods of %s wait for ever on virtual nodes (%s): kubectl lodestone daemonsets keeps them off, and says first what "+
		"restarts", cli.Number(len(names), "DaemonSet"), strings.Join(names, ", "))
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch returns the JSON patch that gives each node selector term of a DaemonSet's template the
// requirement. It fails if the DaemonSet has changed since it was read.
func Patch(set *appsv1.DaemonSet) ([]byte, error) {
	const path, inner = "/spec/template/spec/affinity", "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
	operations := []operation{
		{Op: "test", Path: "/metadata/uid", Value: set.UID},
		{Op: "test", Path: "/metadata/resourceVersion", Value: set.ResourceVersion},
	}
	add := func(path string, value any) {
		operations = append(operations, operation{Op: "add", Path: path, Value: value})
	}
	affinity := set.Spec.Template.Spec.Affinity
	if affinity == nil {
		add(path, struct{}{})
	}
	if affinity == nil || affinity.NodeAffinity == nil {
		add(path+"/nodeAffinity", struct{}{})
	}
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		add(path+inner, corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{requirement}}}})
	} else {
		for i, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			expressions := path + inner + "/nodeSelectorTerms/" + strconv.Itoa(i) + "/matchExpressions"
			switch {
			case len(term.MatchExpressions) > 0 && !excludes(term):
				add(expressions+"/-", requirement)
			case len(term.MatchExpressions) == 0 && len(term.MatchFields) > 0: // an empty term selects no node
				add(expressions, []corev1.NodeSelectorRequirement{requirement})
			}
		}
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("write the change of DaemonSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return patch, nil
}

// excludes reports whether a term has a requirement that no virtual node meets.
func excludes(term corev1.NodeSelectorTerm) bool {
	return slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
		switch r.Operator {
		case corev1.NodeSelectorOpDoesNotExist:
			return r.Key == keys.VirtualNodeRole || r.Key == keys.Cluster
		case corev1.NodeSelectorOpNotIn:
			return r.Key == "type" && slices.Contains(r.Values, "virtual-kubelet")
		default:
			return false
		}
	})
}

// Restarts says what a new template does to a DaemonSet's pods that run.
func Restarts(set *appsv1.DaemonSet, running int) string {
	pods := cli.Number(running, "pod")
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return "none, until you delete its " + pods
	}
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil {
		if most := rolling.MaxUnavailable.String(); most != "0" {
			return pods + ", " + most + " at a time"
		}
	}
	return pods + ", each once its successor is ready"
}

// Count returns how many pods of a DaemonSet run or start on nodes that are not virtual, and how many
// wait for ever because they are for virtual nodes.
func Count(set *appsv1.DaemonSet, pods []corev1.Pod, virtual []corev1.Node) (running, stuck int) {
	for _, pod := range pods {
		owner := metav1.GetControllerOf(&pod)
		switch {
		case owner == nil || owner.UID != set.UID || pod.DeletionTimestamp != nil:
		case slices.ContainsFunc(virtual, func(node corev1.Node) bool { return node.Name == target(&pod) }):
			stuck++
		default:
			running++
		}
	}
	return running, stuck
}

// target returns the node of a DaemonSet's pod, also before it is bound.
func target(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}
