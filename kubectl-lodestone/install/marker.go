package install

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// autoscalerStatus is the ConfigMap of kube-system in which Cluster Autoscaler says how it is.
const autoscalerStatus = "cluster-autoscaler-status"

// markTimeout is how long API servers may take until they mark pods as they were told.
const markTimeout = 60 * time.Second

// cannotMark says why pods are not to be marked in a cluster; empty if they may be. It is pure.
func cannotMark(v Values, facts Facts) string {
	foreign := foreignNodes(facts.Nodes)
	switch {
	case v.Scheduler != Extender:
		return "the scheduler of the control plane does not know the marker, and Lodestone's own needs none"
	case len(foreign) > 0:
		return fmt.Sprintf("node %q is of another virtual kubelet, which would pass the marker on to its cluster", foreign[0])
	case facts.Autoscaler && v.Marker == nil:
		return "Cluster Autoscaler runs here, and takes marked pods for pods that fit on no node until it is told otherwise " +
			"(docs/scheduling.md#pods-that-cost-nothing); then say marker: true in a file of --values"
	case !ptr.Deref(v.Marker, true):
		return "marker: false was chosen"
	}
	return ""
}

// marks says whether new pods with claims are marked, which a dry run shows. Where policies of others refuse its pod nothing is known,
// and the extender is asked about every pod.
func (t *target) marks(ctx context.Context) (bool, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lodestone-dry-run-"},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{Name: "none", Image: "none", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "none"}}}},
		},
	}
	seen, err := t.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsInternalError(err):
		return false, nil
	case err != nil:
		return false, t.Explain("make a pod in a dry run", err)
	}
	_, marked := seen.Spec.Containers[0].Resources.Requests[keys.MarkerResource]
	return marked, nil
}

// beginToMark has new pods marked once every kube-scheduler runs with the configuration of a mark, which overlooks the marker: one
// that did not would find no node for them. It returns whether they are marked now, and says why if they are not.
func (i *installing) beginToMark(ctx context.Context, mark string) (bool, error) {
	last, err := readRecord(ctx, i.Cluster, homeNamespace)
	if err != nil {
		return false, err
	}
	facts, err := i.observe(ctx)
	if err != nil {
		return false, err
	}
	if !last.found {
		i.Say("pods are not marked, because install changes only what it has made itself (docs/scheduling.md#pods-that-cost-nothing)")
		return false, nil
	}
	if why := cannotMark(last.values, facts); why != "" {
		i.Say("pods are not marked: %s", why)
		return false, nil
	}
	schedulers, err := i.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-scheduler"})
	if err != nil {
		return false, i.Explain("list pods -n kube-system", err)
	}
	if other := slices.IndexFunc(schedulers.Items, func(pod corev1.Pod) bool {
		return !strings.HasSuffix(pod.Annotations[stamp], "."+mark)
	}); other >= 0 {
		i.Say("pods are not marked yet: %s does not ask the extender as this node's kube-scheduler does; this command sees to it when it is run "+
			"on the last control-plane node", schedulers.Items[other].Name)
		return false, nil
	}
	return i.applyMarker(ctx, last)
}

// applyMarker adds to an installation what marks pods, leaves all else as it is, and waits until pods are marked.
func (i *installing) applyMarker(ctx context.Context, last record) (bool, error) {
	values := last.values
	values.Marker = ptr.To(true)
	had, err := Build(last.values, false)
	if err != nil {
		return false, err
	}
	wanted, err := Build(values, false)
	if err != nil {
		return false, err
	}
	// The Job that makes certificates tells API servers of a webhook's.
	added := slices.DeleteFunc(wanted, func(object *unstructured.Unstructured) bool {
		return object.GetKind() != "Job" && slices.ContainsFunc(had, func(o *unstructured.Unstructured) bool {
			return reflect.DeepEqual(o, object)
		})
	})
	objects := last.objects
	for _, object := range added {
		objects = union(objects, []reference{referenceTo(object)})
	}
	if err := writeRecord(ctx, i.Cluster, homeNamespace, record{values: values, objects: objects}); err != nil {
		return false, err
	}
	var count changes
	for _, object := range added {
		if err := i.target.apply(ctx, object, i.Force, &count); err != nil {
			return false, err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	err = i.Await(waiting, "the marker on new pods", func(ctx context.Context) (string, bool, error) {
		marked, err := i.marks(ctx)
		return "a dry run has none", marked, err
	})
	if err != nil && ctx.Err() == nil && errors.Is(waiting.Err(), context.DeadlineExceeded) {
		i.Say("kube-scheduler asks about every pod for now: %v", err)
		return false, nil
	}
	return err == nil, err
}
