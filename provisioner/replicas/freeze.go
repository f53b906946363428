package replicas

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/decide"
	"github.com/lodestone-storage/lodestone/provisioner/replicas/record"
	"github.com/lodestone-storage/lodestone/provisioner/site"
)

const (
	// thawTimeout limits one call of a thaw.
	thawTimeout = 30 * time.Second
	// longestHold is when others have their turn although an application may be frozen: longer than spec.hooks.timeout can be.
	longestHold = 4 * time.Minute
	// mostPods is how many pods are frozen for a point.
	mostPods = 64
	// mostOutput is how much of what a command says is kept, in bytes.
	mostOutput = 512
)

// beginFreeze finds out what is frozen for a point of consistency Frozen.
func (c *Controller) beginFreeze(ctx context.Context, hooks *v1alpha1.ReplicaHooks, r *record.Record, now time.Time) (*record.Freeze,
	error) {
	if hooks == nil || len(hooks.Freeze) == 0 || len(hooks.Thaw) == 0 {
		return nil, refuse(decide.NotFrozen, "spec.consistency is Frozen and spec.hooks does not say how: set it")
	}
	f := &record.Freeze{Command: hooks.Freeze, Thaw: hooks.Thaw, Since: now, Limit: 30 * time.Second}
	if hooks.Timeout != nil {
		f.Limit = min(max(hooks.Timeout.Duration, time.Second), 2*time.Minute)
	}
	pods, err := c.podsWith(ctx, r)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		pod := &pods[i]
		if hasEnded(pod) {
			f.Rested = append(f.Rested, pod.UID)
			continue
		}
		container, why := freezable(pod, hooks.Container, r.Claims())
		if why != "" {
			return nil, refuse(decide.NotFrozen, "the application cannot be frozen now: pod %s %s; the point is tried again", pod.Name, why)
		}
		f.Pods = append(f.Pods, record.FrozenPod{Name: pod.Name, UID: pod.UID, Container: container, State: stateOf(pod)})
	}
	strangers, err := c.strangers(ctx, r)
	if err != nil {
		return nil, err
	}
	if len(strangers) > 0 {
		return nil, refuse(decide.NotFrozen, "pod %s of cluster %s uses the volume there and is none of home's, so it cannot be frozen: end it, "+
			"or set spec.consistency to Crash", strangers[0].Name, r.Point.Source.Cluster)
	}
	switch {
	case len(f.Pods) == 0:
		return f, nil
	case len(f.Pods) > mostPods:
		return nil, refuse(decide.NotFrozen, "%d pods use the claims, and %d at most are frozen at once: let fewer run, or set spec.consistency "+
			"to Crash", len(f.Pods), mostPods)
	}
	review, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: r.Namespace, Verb: "create", Resource: "pods", Subresource: "exec"}},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask whether commands may be run in namespace %s: %w", r.Namespace, err)
	case !review.Status.Allowed:
		return nil, refuse(decide.NotFrozen, "the provisioner may not run commands in namespace %s, so it cannot freeze pod %s: kubectl create "+
			"rolebinding lodestone-freeze -n %s --clusterrole=lodestone-freeze --serviceaccount=%s:lodestone-provisioner", r.Namespace,
			f.Pods[0].Name, r.Namespace, c.Namespace)
	}
	return f, nil
}

// freezable returns the container of a pod that the commands run in; why says why it cannot be frozen.
func freezable(pod *corev1.Pod, wanted string, claims []string) (container, why string) {
	if container = wanted; container == "" {
		container = mounting(pod, claims)
	}
	status := slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses)
	i := slices.IndexFunc(status, func(s corev1.ContainerStatus) bool { return s.Name == container })
	switch {
	case container == "":
		return "", "has no container that mounts the claim: name one in spec.hooks.container"
	case pod.DeletionTimestamp != nil:
		return "", "is ending"
	case pod.Status.Phase != corev1.PodRunning && (i < 0 || status[i].State.Running == nil):
		return "", "does not run yet"
	case i < 0:
		return "", fmt.Sprintf("has no container %s: name another in spec.hooks.container", container)
	case status[i].State.Running == nil:
		return "", fmt.Sprintf("has container %s, which does not run", container)
	case pod.Status.Phase != corev1.PodRunning:
		return "", "does not run yet"
	}
	return container, ""
}

// mounting returns the first container of a pod that mounts one of some claims, empty if none does.
func mounting(pod *corev1.Pod, claims []string) string {
	for _, container := range pod.Spec.Containers {
		for i := range pod.Spec.Volumes {
			volume := &pod.Spec.Volumes[i]
			if slices.Contains(claims, claimOf(pod, volume)) && (slices.ContainsFunc(container.VolumeMounts,
				func(m corev1.VolumeMount) bool { return m.Name == volume.Name }) || slices.ContainsFunc(container.VolumeDevices,
				func(d corev1.VolumeDevice) bool { return d.Name == volume.Name })) {
				return container.Name
			}
		}
	}
	return ""
}

// claimOf is the claim that a volume of a pod is, empty if it is none.
func claimOf(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, volume)
	}
	return ""
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// stateOf tells the containers of a pod from those that follow them.
func stateOf(pod *corev1.Pod) string {
	var all []string
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		all = append(all, fmt.Sprintf("%s/%s/%d/%t", s.Name, s.ContainerID, s.RestartCount, s.State.Running != nil))
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:8])
}

// podsWith returns the pods with claims of a replica that have a node, wherever that is: those in remote clusters are pods of home, too.
func (c *Controller) podsWith(ctx context.Context, r *record.Record) (found []corev1.Pod, err error) {
	claims := r.Claims()
	err = site.EachPage(ctx, metav1.ListOptions{}, c.Client.CoreV1().Pods(r.Namespace).List, func(page *corev1.PodList) {
		for i := range page.Items {
			pod := &page.Items[i]
			if pod.Spec.NodeName != "" && slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
				return slices.Contains(claims, claimOf(pod, &volume))
			}) {
				found = append(found, *pod)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list pods that use claims %s: %w", strings.Join(claims, ", "), err)
	}
	return found, nil
}

// strangers returns the pods that users of a remote cluster have made there themselves, and that use what the point is of.
func (c *Controller) strangers(ctx context.Context, r *record.Record) (found []decide.User, err error) {
	p := r.Point
	if p.Source.Cluster == keys.Home {
		return nil, nil
	}
	at, err := c.sites.At(p.Source.Cluster)
	if err != nil {
		return nil, err
	}
	ctx, cancel := at.WithTimeout(ctx)
	defer cancel()
	var names []string
	for i := range r.Len() {
		names = append(names, p.At(i).Source.Name)
	}
	ours := metav1.ListOptions{LabelSelector: keys.HomeID + "!=" + c.Place.HomeID}
	err = site.EachPage(ctx, ours, at.Client.CoreV1().Pods(p.Source.Namespace).List, func(page *corev1.PodList) {
		for i := range page.Items {
			pod := &page.Items[i]
			if pod.Spec.NodeName != "" && !hasEnded(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
				return slices.Contains(names, claimOf(pod, &volume))
			}) {
				found = append(found, decide.User{Name: plain(pod.Name), UID: pod.UID})
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list pods beside real claim %s: %w", p.Source.Key(), err)
	}
	return found, nil
}

// observeUsers reads which pods may write to the claims of a point.
func (c *Controller) observeUsers(ctx context.Context, o *decide.Observation) error {
	pods, err := c.podsWith(ctx, o.Record)
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		o.Users = append(o.Users, decide.User{Name: pod.Name, UID: pod.UID, State: stateOf(pod), Ended: hasEnded(pod)})
	}
	if o.Record.Point.Stage != record.Cut {
		// Where they are may not answer, and a thaw does not wait for that.
		return nil
	}
	strangers, err := c.strangers(ctx, o.Record)
	o.Users = append(o.Users, strangers...)
	return err
}

// observeHeld reads what a step is decided from while an application may be frozen: only what is needed, and no longer than it may be.
func (c *Controller) observeHeld(ctx context.Context, o *decide.Observation) error {
	p := o.Record.Point
	switch {
	case p.Stage == record.Freezing:
		return nil
	case p.Stage == record.Thaw:
		return c.observeUsers(ctx, o)
	}
	until := p.Freeze.Since.Add(p.Freeze.Limit)
	if !o.Now.Before(until) {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if err := c.observeSource(ctx, o); err != nil || o.Source.Unusable != "" {
		return err
	}
	if o.Claims[0].Snapshot.Taken || o.Group.Taken {
		// Read after the snapshot was seen to be taken: whoever wrote before is among them.
		return c.observeUsers(ctx, o)
	}
	return nil
}

// freeze freezes the pods of a point.
func (c *Controller) freeze(ctx context.Context, w *activeReplica, o decide.Observation) error {
	f := o.Record.Point.Freeze
	// Whatever becomes of this, it is called once.
	w.hold = decide.Unknown
	calling, cancel := context.WithDeadline(context.WithoutCancel(ctx), f.Since.Add(f.Limit))
	defer cancel()
	defer c.cancelAtEnd(cancel)()
	outcomes := make([]decide.Outcome, len(f.Pods))
	var all sync.WaitGroup
	for i := range f.Pods {
		all.Go(func() { outcomes[i] = c.run(calling, f.Limit, o.Record.Namespace, &f.Pods[i], f.Command) })
	}
	all.Wait()
	step := decide.AfterFreeze(o.Record, time.Now(), outcomes)
	if err := c.saveStep(ctx, w, o, step); err != nil {
		c.thawUnsaved(ctx, w, o.Record)
		return err
	}
	if step.Reason == "" {
		w.hold = decide.Holds
	}
	return nil
}

// cancelAtEnd cancels something once this process is to end, until the function that it returns is called.
func (c *Controller) cancelAtEnd(cancel func()) (stop func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-c.ending:
			cancel()
		case <-over:
		}
	}()
	return func() { close(over) }
}

// thaw thaws the pods of a point for which it is time.
func (c *Controller) thaw(ctx context.Context, w *activeReplica, o decide.Observation) error {
	outcomes := c.callThaw(ctx, o.Record, o.Now)
	w.holding = false
	return c.saveStep(ctx, w, o, decide.AfterThaw(o.Record, time.Now(), outcomes))
}

// thawUnsaved thaws the pods of a point although the record could not be written which says that they are to be: an API server that takes
// no writes may still run commands. The record goes on saying that they may be frozen, so they are thawed again once it can be written.
func (c *Controller) thawUnsaved(ctx context.Context, w *activeReplica, r *record.Record) {
	if !r.Point.Owed() || w.hold == decide.Thawed {
		return
	}
	// From here on no snapshot is of a moment at which all were frozen.
	w.hold = decide.Thawed
	for _, outcome := range c.callThaw(ctx, r, time.Now()) {
		if outcome.Why != "" {
			w.hold = decide.Unsaved
		}
	}
}

// callThaw calls the thaw of a point in the pods for which it is time, and returns what became of it by their UID.
func (c *Controller) callThaw(ctx context.Context, r *record.Record, now time.Time) map[types.UID]decide.Outcome {
	f := r.Point.Freeze
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), thawTimeout)
	defer cancel()
	outcomes := map[types.UID]decide.Outcome{}
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range f.Pods {
		if pod := &f.Pods[i]; decide.MustThaw(*pod, now) {
			all.Go(func() {
				outcome := c.run(calling, thawTimeout, r.Namespace, pod, f.Thaw)
				mu.Lock()
				defer mu.Unlock()
				outcomes[pod.UID] = outcome
			})
		}
	}
	all.Wait()
	return outcomes
}

// saveStep writes the record that follows from what commands came to, and tells what is wrong. The commands may have taken all the time
// that the step had.
func (c *Controller) saveStep(ctx context.Context, w *activeReplica, o decide.Observation, step decide.Step) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	save, ok := step.Action.(decide.Save)
	if !ok {
		return fmt.Errorf("nobody takes action %T after a command", step.Action)
	}
	c.tell(w, o, step)
	return c.save(ctx, w, save.Record)
}

// run runs a command in a pod, until it ends or ctx does, which it has as a limit: then it may go on there.
func (c *Controller) run(ctx context.Context, limit time.Duration, namespace string, pod *record.FrozenPod,
	command []string) decide.Outcome {
	location := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: pod.Container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).
		URL()
	said := &output{}
	executor, err := c.executor(location)
	if err == nil {
		err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: said, Stderr: said})
	}
	ended := utilexec.CodeExitError{}
	name := plain(strings.Join(command, " "))
	switch {
	case err == nil:
		return decide.Outcome{Ended: true}
	case errors.As(err, &ended):
		return decide.Outcome{Ended: true, Why: plain(fmt.Sprintf("%q exited with code %d: %s", name, ended.Code,
			cmp.Or(said.text(), "it said nothing")))}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return decide.Outcome{Why: plain(fmt.Sprintf("%q did not end within %s", name, limit))}
	case ctx.Err() != nil:
		return decide.Outcome{Why: plain(fmt.Sprintf("%q had not ended when the provisioner was stopped", name))}
	}
	return decide.Outcome{Refused: strings.HasPrefix(err.Error(), refusedUpgrade),
		Why: plain(fmt.Sprintf("%q could not be run: %v", name, strings.TrimPrefix(err.Error(), refusedUpgrade)))}
}

// refusedUpgrade is how an error begins where no command was begun: the API server, or what it asked, refused.
const refusedUpgrade = "unable to upgrade connection: "

// executor runs a command over a WebSocket, or as API servers before Kubernetes 1.30 do.
func (c *Controller) executor(location *url.URL) (remotecommand.Executor, error) {
	overWebSocket, err := remotecommand.NewWebSocketExecutor(c.Home, http.MethodGet, location.String())
	if err != nil {
		return nil, fmt.Errorf("make a WebSocket: %w", err)
	}
	overSPDY, err := remotecommand.NewSPDYExecutor(c.Home, http.MethodPost, location)
	if err != nil {
		return nil, fmt.Errorf("make a connection of SPDY: %w", err)
	}
	either, err := remotecommand.NewFallbackExecutor(overWebSocket, overSPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, fmt.Errorf("choose between a WebSocket and SPDY: %w", err)
	}
	return either, nil
}

// output keeps the beginning of what a command says, and lets it say as much as it wants.
type output struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (o *output) Write(said []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept.Write(said[:min(len(said), mostOutput-o.kept.Len())])
	return len(said), nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(plain(o.kept.String()))
}
