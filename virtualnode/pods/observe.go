package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/namespaces"
	"github.com/lodestone-storage/lodestone/virtualnode/decide"
	"github.com/lodestone-storage/lodestone/virtualnode/translate"
)

// observe gathers what is known of one home pod, from caches alone. If believed
// is true, the ShadowPod was written or read by a request but is not seen: should
// it be gone already, no event will say so.
func (r *runner) observe(ctx context.Context, k key) (o decide.Observation, believed bool) {
	o = decide.Observation{
		Cluster: r.session.Cluster, ClusterUID: r.cluster(), Network: r.session.Network,
		Problem: r.memory.problemOf(k),
	}
	if pod := r.homePod(k.uid); pod != nil && pod.Spec.NodeName == r.session.Node && r.keyOf(pod) == k {
		o.Pod = r.pods.newer(k.uid, pod)
		o.Open = namespaces.MayUse(one[corev1.Namespace](r.config.Namespaces.GetStore(), pod.Namespace), r.session.Cluster)
		o.Template = translate.Template(o.Pod, r.session.Namespace)
		if _, started := decide.CopyOf(o.Pod); started {
			// Even if the namespace was taken back since: it must be ended.
			r.places.watch(k.namespace)
		}
	}
	if node := one[corev1.Node](r.config.Nodes.GetStore(), r.session.Node); node != nil {
		o.HostIP, o.Current = address(node), ready(node)
		o.Silent = !o.Current
	}
	o.Place = r.places.of(k.namespace)
	shadow, remote := r.places.find(k)
	if shadow != nil && !r.isOf(shadow, k.uid) {
		o.Blocking, shadow = shadow, nil
	}
	o.Shadow = r.shadows.of(k.uid, shadow)
	if o.Pod != nil && o.Shadow != nil {
		translate.KeepClaims(&o.Template, o.Shadow.Spec.Pod)
	}
	believed = shadow == nil && o.Shadow != nil
	if remote != nil && remote.Labels[keys.PodUID] == string(k.uid) {
		o.Remote = remote
	}
	if o.ClusterUID == "" {
		o.Place.Given, o.Place.Message = false, fmt.Sprintf("waiting until cluster %s answers", r.session.Cluster)
	}
	if o.Pod == nil && o.Shadow == nil {
		r.memory.forget(k)
	}
	klog.FromContext(ctx).V(6).Info("Observed", "podUID", k.uid, "pod", o.Pod != nil, "shadow", o.Shadow != nil, "remote", o.Remote != nil)
	return o, believed
}

// isOf says whether a ShadowPod is that of a home pod of ours.
func (r *runner) isOf(shadow *shadowPod, uid types.UID) bool {
	return shadow.Spec.Home.Cluster == r.session.HomeID && shadow.Spec.Home.UID == uid
}

// perform takes a step and tells the user what there is to tell.
func (r *runner) perform(ctx context.Context, k key, o decide.Observation, step decide.Step) outcome {
	logger := klog.FromContext(ctx).WithValues("podUID", k.uid)
	if o.Pod != nil {
		logger = logger.WithValues("pod", klog.KObj(o.Pod))
	}
	ctx = klog.NewContext(ctx, logger)
	r.tell(k, o.Pod, step.Tell)
	if step.Verb == decide.Idle {
		return outcome{}
	}
	logger.V(3).Info("Taking step", "step", step.Verb)
	result := r.act(ctx, k, o, step)
	name := "success"
	if result.err != nil {
		name = "error"
		logger.V(2).Info("Step will be tried again", "step", step.Verb, "err", result.err)
		r.failed(k, o, step, result.err)
	} else {
		r.memory.setProblem(k, "")
	}
	r.steps.WithLabelValues(r.session.Cluster, string(step.Verb), name).Inc()
	return result
}

// failed remembers why a step failed, and tells the user once it keeps failing.
// What goes away by itself, as a conflict does, is not worth it.
func (r *runner) failed(k key, o decide.Observation, step decide.Step, err error) {
	if passing(err) {
		return
	}
	text := bounded(err.Error(), maxEvent/2) + "; it is tried again"
	r.memory.setProblem(k, text)
	if r.queue.NumRequeues(k) < 3 {
		return
	}
	if o.Pod != nil && (step.Verb == decide.Finish || step.Verb == decide.End) {
		text += "; until then the pod stays, for it may still run there: once it is certain that it does not, `kubectl lodestone release pod` gives it up"
	}
	r.tell(k, o.Pod, &decide.Message{Warning: true, Reason: string(step.Verb) + "Failed", Text: text})
}

// maxEvent bounds the text of an event, in bytes: an API server takes no longer one,
// and much of it is what a remote cluster says.
const maxEvent = 1024

// tell writes an event on the home pod. The same thing is not told again for
// a while.
func (r *runner) tell(k key, pod *corev1.Pod, m *decide.Message) {
	if m == nil || pod == nil {
		return
	}
	text := bounded(m.Text, maxEvent)
	if !r.memory.worthTelling(k, m.Reason+" "+text, time.Now()) {
		return
	}
	kind := corev1.EventTypeNormal
	if m.Warning {
		kind = corev1.EventTypeWarning
	}
	r.config.Recorder.Event(pod, kind, m.Reason, text)
}

// bounded returns a text cut to a number of bytes, as valid UTF-8.
func bounded(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// encode returns a patch.
func encode(patch map[string]any) ([]byte, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return data, nil
}
