package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// manager is whose fields are those that an installation sets.
const manager = "kubectl-lodestone"

// target is a cluster into which objects of any kind are applied.
type target struct {
	*cli.Cluster
	cli.Reporter
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
}

func newTarget(cluster *cli.Cluster, reporter cli.Reporter) (*target, error) {
	config := rest.CopyConfig(cluster.Config)
	config.QPS, config.Burst = 100, 200
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(cluster.Client.Discovery()))
	return &target{Cluster: cluster, Reporter: reporter, dynamic: client, mapper: mapper}, nil
}

// mayAll returns an error if the user has not all rights: whoever gives rights to others must have them.
func (t *target) mayAll(ctx context.Context) error {
	lacking, err := t.Lacking(ctx, cli.Right{Verb: "*", Group: "*", Resource: "*"})
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("you need the rights of a cluster administrator in the cluster of context %q for this: ask one to run this command",
			t.Context)
	}
	return err
}

// resource returns the client of an object.
func (t *target) resource(r reference) (dynamic.ResourceInterface, error) {
	mapping, err := t.mapper.RESTMapping(r.kind.GroupKind(), r.kind.Version)
	switch {
	case notServed(err):
		return nil, fmt.Errorf("the cluster of context %q does not serve %s of %s, of which %q is one: upgrade the cluster, or install what "+
			"serves it first: %w", t.Context, r.kind.Kind, r.kind.GroupVersion(), r.name, err)
	case err != nil:
		return nil, t.Explain("ask what its API server serves", err)
	case mapping.Scope.Name() == meta.RESTScopeNameNamespace:
		return t.dynamic.Resource(mapping.Resource).Namespace(r.namespace), nil
	}
	return t.dynamic.Resource(mapping.Resource), nil
}

// notServed says that an error is about a kind of objects that the API server does not serve.
func notServed(err error) bool {
	var unknown *meta.NoKindMatchError
	return errors.As(err, &unknown)
}

func unless(expected bool, err error) error {
	if expected {
		return nil
	}
	return err
}

// phases returns objects in the order in which they are applied, in groups of which each has its programs run before the next is
// begun. What confines programs comes before them. Only where an agent runs already does it come before what confines home: an old
// agent does not write what the new policy asks for, and new claims would be refused. It is pure.
func phases(objects []*unstructured.Unstructured, agentRuns bool) [][]*unstructured.Unstructured {
	var agent, first, workloads []*unstructured.Unstructured
	for _, object := range objects {
		switch kind := object.GetKind(); {
		case agentRuns && object.GetLabels()["app.kubernetes.io/component"] == "remote-agent":
			agent = append(agent, object)
		case rolls(kind), kind == "Job", kind == "CronJob":
			workloads = append(workloads, object)
		default:
			first = append(first, object)
		}
	}
	all := [][]*unstructured.Unstructured{agent, slices.Concat(first, workloads)}
	return slices.DeleteFunc(all, func(phase []*unstructured.Unstructured) bool { return len(phase) == 0 })
}

// agree returns an error, before anything is changed, if somebody else has set fields of objects that are there to other values.
func (t *target) agree(ctx context.Context, objects []*unstructured.Unstructured) error {
	var all []string
	for _, object := range objects {
		r := referenceTo(object)
		client, err := t.resource(r)
		if err != nil {
			return err
		}
		if _, err := client.Get(ctx, r.name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return t.Explain("get "+r.String(), err)
		}
		_, err = client.Apply(ctx, r.name, object, metav1.ApplyOptions{FieldManager: manager, DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsConflict(err) { // any other error comes again when it is applied
			all = append(all, fmt.Sprintf("%s (%s)", r, conflicts(err)))
		}
	}
	if len(all) > 0 {
		return fmt.Errorf("nothing was changed, because somebody else has set fields that install sets, in %s: if they may be overwritten, give "+
			"--force-conflicts", strings.Join(all, ", and in "))
	}
	return nil
}

// changes counts what became of objects.
type changes struct{ made, changed, same, removed int }

func (c changes) String() string {
	return fmt.Sprintf("%d objects made, %d changed, %d as they were, %d removed", c.made, c.changed, c.same, c.removed)
}

// apply brings an object into the cluster with server-side apply.
func (t *target) apply(ctx context.Context, object *unstructured.Unstructured, force bool, count *changes) error {
	r := referenceTo(object)
	client, err := t.resource(r)
	if err != nil {
		return err
	}
	before, err := client.Get(ctx, r.name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return t.Explain("get "+r.String(), err)
	}
	if err != nil {
		before = nil
	}
	options := metav1.ApplyOptions{FieldManager: manager, Force: force}
	after, err := client.Apply(ctx, r.name, object, options)
	if apierrors.IsInvalid(err) && before != nil && r.kind.Kind == "Job" {
		// The pods of a Job cannot be changed, and what this one does may be done again.
		if err := t.remove(ctx, r); err != nil {
			return err
		}
		after, err = client.Apply(ctx, r.name, object, options)
	}
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("somebody else has set fields that install sets, in %s (%s): if they may be overwritten, give --force-conflicts", r,
			conflicts(err))
	case err != nil:
		return t.Explain("apply "+r.String(), err)
	case before == nil:
		count.made++
	case sameContent(before, after):
		count.same++
	default:
		count.changed++
		t.Say("changed %s", r)
	}
	return nil
}

// sameContent says that two states of an object differ only in what controllers write. It is pure.
func sameContent(before, after *unstructured.Unstructured) bool {
	content := func(object *unstructured.Unstructured) *unstructured.Unstructured {
		object = object.DeepCopy()
		delete(object.Object, "status")
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		return object
	}
	return equality.Semantic.DeepEqual(content(before), content(after))
}

// conflicts lists the fields that others have set.
func conflicts(err error) string {
	var status apierrors.APIStatus
	var all []string
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == metav1.CauseTypeFieldManagerConflict {
				all = append(all, cause.Field+": "+cause.Message)
			}
		}
	}
	if len(all) == 0 {
		return err.Error()
	}
	return strings.Join(all, "; ")
}

// remove deletes an object and waits until it is gone.
func (t *target) remove(ctx context.Context, r reference) error {
	if err := t.delete(ctx, r); err != nil {
		return err
	}
	return t.awaitGone(ctx, r)
}

// delete has an object deleted, with the pods that belong to it. Of a kind that is not served any more there is none.
func (t *target) delete(ctx context.Context, r reference) error {
	client, err := t.resource(r)
	if err != nil {
		return unless(notServed(err), err)
	}
	background := metav1.DeletePropagationBackground
	if err := client.Delete(ctx, r.name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil && !apierrors.IsNotFound(err) {
		return t.Explain("delete "+r.String(), err)
	}
	return nil
}

func (t *target) awaitGone(ctx context.Context, r reference) error {
	client, err := t.resource(r)
	if err != nil {
		return unless(notServed(err), err)
	}
	return t.Await(ctx, "the end of "+r.String(), func(ctx context.Context) (string, bool, error) {
		object, err := client.Get(ctx, r.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return "", true, nil
		case err != nil:
			return "", false, t.Explain("get "+r.String(), err)
		}
		if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
			return "finalizers " + strings.Join(finalizers, ", "), false, nil
		}
		return "it is being deleted", false, nil
	})
}

// rolls says that objects of a kind have pods that are to run, and are renewed.
func rolls(kind string) bool { return kind == "Deployment" || kind == "DaemonSet" }

// awaitPrograms waits until the pods of a Deployment or a DaemonSet are those that it asks for.
func (t *target) awaitPrograms(ctx context.Context, object *unstructured.Unstructured) error {
	r := referenceTo(object)
	namespace := r.namespace
	return t.Await(ctx, r.String(), func(ctx context.Context) (string, bool, error) {
		state, selecting, err := t.progress(ctx, r)
		if err != nil {
			return "", false, t.Explain("get "+r.String(), err)
		}
		if state == "" {
			return "", true, nil
		}
		selector, err := metav1.LabelSelectorAsSelector(selecting)
		if err != nil {
			return state, false, nil //nolint:nilerr // the pods would only say more
		}
		pods, err := t.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return "", false, t.Explain("list pods -n "+namespace, err)
		}
		if why := stuck(pods.Items); why != "" {
			state += "; " + why
		}
		return state, false, nil
	})
}

// progress says how far a Deployment or a DaemonSet is, empty if all its pods are new and run, and which pods are its.
func (t *target) progress(ctx context.Context, r reference) (state string, pods *metav1.LabelSelector, err error) {
	if r.kind.Kind == "DaemonSet" {
		daemonSet, err := t.Client.AppsV1().DaemonSets(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
		if err != nil {
			return "", nil, err
		}
		return rolloutOnNodes(daemonSet), daemonSet.Spec.Selector, nil
	}
	deployment, err := t.Client.AppsV1().Deployments(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return "", nil, err
	}
	state, _ = rollout(deployment)
	return state, deployment.Spec.Selector, nil
}

// rolloutOnNodes says how far a DaemonSet is; empty once a new pod is available on each of its nodes. It is pure.
func rolloutOnNodes(daemonSet *appsv1.DaemonSet) string {
	status := daemonSet.Status
	if status.ObservedGeneration < daemonSet.Generation {
		return "it is not seen yet"
	}
	if ready := min(status.UpdatedNumberScheduled, status.NumberAvailable); ready < status.DesiredNumberScheduled {
		return fmt.Sprintf("it is ready on %d of %d nodes", ready, status.DesiredNumberScheduled)
	}
	return ""
}

// rollout says how far a Deployment is, and whether all its pods are new and available. It is pure.
func rollout(deployment *appsv1.Deployment) (state string, done bool) {
	wanted, status := int32(1), deployment.Status
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	if status.ObservedGeneration < deployment.Generation {
		return "it is not seen yet", false
	}
	ready := min(status.UpdatedReplicas, status.AvailableReplicas)
	if ready >= wanted && status.Replicas == status.UpdatedReplicas {
		return "", true
	}
	return fmt.Sprintf("%d of %d pods are ready", min(ready, wanted), wanted), false
}

// stuck says of the first pod that waits for more than time why it does; empty if none does. It is pure.
func stuck(pods []corev1.Pod) string {
	const longest = 200
	for _, pod := range pods {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return fmt.Sprintf("pod %s: %s", pod.Name, sentence.Short(sentence.Plain(condition.Message, 2*longest), longest))
			}
		}
		for _, container := range pod.Status.ContainerStatuses {
			waits := container.State.Waiting
			if waits == nil || waits.Reason == "ContainerCreating" || waits.Reason == "PodInitializing" {
				continue
			}
			return fmt.Sprintf("pod %s: %s: %s", pod.Name, waits.Reason, sentence.Short(sentence.Plain(waits.Message, 2*longest), longest))
		}
	}
	return ""
}
