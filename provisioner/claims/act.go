// This file takes the steps that were decided for a claim, but for those that have a file of their own: sync.go, heal.go,
// remove.go, standin.go, readevents.go, report.go. It is long because it is a list of steps.

package claims

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/provisioner/claims/decide"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
	"github.com/lodestone-storage/lodestone/provisioner/claims/steps"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

const (
	// stepTimeout bounds all requests of one step.
	stepTimeout = 30 * time.Second
	// safetyNet is when a claim is observed again after a step, if no event has shown the
	// effect by then.
	safetyNet = 10 * time.Second
	// freshAttempts is how often a request whose rights may be seconds old is tried, over
	// some seconds.
	freshAttempts = 8
)

// act takes a step. It need not know whether a failed request took effect: the next
// observation shows it.
func (f *Controller) act(ctx context.Context, o steps.Observation, step steps.Step) outcome {
	switch a := step.Action.(type) {
	case nil:
		if o.Claim == nil && o.Volume == nil && len(o.Backings) == 0 {
			f.Publisher.Forget(o.UID)
			f.memory.forget(o.UID)
			f.conditionWrites.drop(o.UID)
		}
		return outcome{}
	case steps.RecordCluster:
		err := f.patchClaim(ctx, o.Claim, map[string]any{keys.Routed: a.To})
		if err == nil {
			// The request for the earlier annotation is accounted for; none was sent for
			// the new one.
			f.memory.setUnsent(o.UID, true)
		}
		return outcome{err: err}
	case steps.CreateBacking:
		return f.createBacking(ctx, o, a)
	case steps.CreateVolume:
		claim := o.UID // The publisher keeps the function, which must not keep all that was observed.
		f.Publisher.Publish(o.Claim, func() *corev1.PersistentVolume { return f.publishable(claim) })
		f.enqueueSiblings(o)
		return outcome{}
	case steps.MarkPublished:
		return outcome{err: f.markPublished(ctx, o, a)}
	case steps.RemoveBacking:
		err := f.removeBacking(ctx, o, a)
		if err == nil && a.Refusal != nil {
			err = f.reschedule(ctx, o, a.Refusal)
			f.enqueueSiblings(o)
		}
		return outcome{err: err}
	case steps.Reschedule:
		err := f.reschedule(ctx, o, a.Refusal)
		f.enqueueSiblings(o)
		return outcome{err: err}
	case steps.RequeuePods:
		return outcome{err: f.requeuePods(ctx, o)}
	case steps.ReleaseBacking:
		return outcome{err: f.releaseBacking(ctx, o, a)}
	case steps.ConfirmGone:
		return f.confirmGone(ctx, o, a)
	case steps.FinishVolume:
		f.Publisher.Finish(o.Volume)
		return outcome{}
	case steps.UpdateVolume:
		f.spend(o, a.Backing)
		return outcome{err: f.updateVolume(ctx, o, a)}
	case steps.ExpandBacking:
		return f.expandBacking(ctx, o, a)
	case steps.UpdateClaimStatus:
		f.spend(o, a.Backing)
		return outcome{err: f.updateClaimStatus(ctx, o, a)}
	case steps.MarkFixedSize:
		return outcome{err: f.patchClaim(ctx, o.Claim, map[string]any{keys.FixedSize: orNil(a.Why)})}
	case steps.ModifyBacking:
		return f.modifyBacking(ctx, o, a)
	case steps.SyncMetadata:
		return outcome{err: f.syncMetadata(ctx, o, a)}
	case steps.MakeStandIn:
		return outcome{err: f.makeStandIn(ctx, o, a)}
	case steps.RemoveStandIn:
		return outcome{err: f.removeStandIn(ctx, a)}
	case steps.RecordSource:
		change := map[string]any{keys.SourceCluster: orNil(a.In)}
		if a.Version != "" {
			change[keys.ReplicaVersion] = a.Version
		}
		return outcome{err: f.patchClaim(ctx, o.Claim, change)}
	case steps.ReadEvents:
		return f.readEvents(ctx, o, a)
	case steps.LockClaim:
		return outcome{err: f.lockClaim(ctx, o)}
	case steps.ShowTrouble:
		return f.showTrouble(ctx, o, a, step)
	case steps.HealBacking:
		return outcome{err: f.healBacking(ctx, o, a), after: safetyNet}
	}
	return outcome{err: fmt.Errorf("nobody takes step %s", step.Verb())}
}

// orNil returns a text as the value of an annotation in a patch; nil, which removes it, for
// an empty text.
func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// spend counts a write at home of what a remote cluster reports against the claim's budget.
func (f *Controller) spend(o steps.Observation, of steps.Backing) {
	if of.Cluster != keys.Home {
		f.memory.spend(o.UID, o.Now)
	}
}

// errNoClient is the error of a step in a cluster that has just been disconnected.
var errNoClient = errors.New("the cluster has no client now")

func (f *Controller) client(cluster string) (kubernetes.Interface, error) {
	if cluster == keys.Home {
		return f.Client, nil
	}
	if c := f.Clusters.Get(cluster); c != nil {
		if client := c.Client(); client != nil {
			return client, nil
		}
	}
	return nil, errNoClient
}

// markPublished records that a backing claim has, or is about to have, a virtual volume.
func (f *Controller) markPublished(ctx context.Context, o steps.Observation, a steps.MarkPublished) error {
	client, err := f.client(a.Backing.Cluster)
	if err != nil {
		return err
	}
	cluster, claim := a.Backing.Cluster, a.Backing.Claim
	patch, err := annotationsPatch(claim.UID, "", map[string]any{keys.Unpublished: nil})
	if err != nil {
		return err
	}
	marked, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil {
		f.probe(cluster)
		return fmt.Errorf("mark backing claim %s/%s in %s as published: %w", claim.Namespace, claim.Name, cluster, err)
	}
	f.memory.setWritten(o.UID, cluster, claim, marked)
	return nil
}

// reschedule removes the selected node from a claim, so that kube-scheduler chooses again,
// and records the refusal. It is one write, because each write of a claim makes the next
// write of a stale copy fail.
func (f *Controller) reschedule(ctx context.Context, o steps.Observation, refused *steps.Refusal) error {
	changes := map[string]any{keys.SelectedNode: nil, keys.Routed: nil}
	if refused != nil {
		list := locality.AddRefusal(locality.DecodeRefusals(o.Claim.Annotations[keys.Refused]), locality.Refusal{
			Cluster: refused.Cluster, Node: refused.Node, Reason: refused.Reason, Message: refused.Message, Until: o.Now.Add(f.RefusalPeriod),
		}, o.Now)
		encoded, err := locality.EncodeRefusals(list)
		if err != nil {
			return err
		}
		changes[keys.Refused] = encoded
		f.Metrics.refused(refused)
	}
	return f.patchClaim(ctx, o.Claim, changes)
}

// updateVolume updates a virtual volume from its real volume. It copies only the real
// volume's name, its size, and whether it has the attributes that the virtual claim
// requests; the size only of a volume that no driver at home manages, the attributes only
// of a volume with its data in a remote cluster.
func (f *Controller) updateVolume(ctx context.Context, o steps.Observation, a steps.UpdateVolume) error {
	metadata, spec := map[string]any{"uid": o.Volume.UID}, map[string]any{}
	annotations := map[string]any{}
	if decide.Unmarked(o.Volume, a.Backing) {
		annotations[keys.ClusterUID] = a.Backing.ClusterUID
	}
	if real := a.Backing.Volume; real != nil {
		annotations[keys.BackingVolume] = real.Name
		have, want := o.Volume.Spec.Capacity[corev1.ResourceStorage], real.Spec.Capacity[corev1.ResourceStorage]
		if decide.KeepsSize(o.Volume) && have.Cmp(want) < 0 {
			spec["capacity"] = map[string]any{string(corev1.ResourceStorage): want.String()}
		}
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	attributed := decide.AttributesApplied(o, a.Backing)
	if attributed {
		spec["volumeAttributesClassName"] = backing.Attributes(o.Claim)
	}
	if err := f.patchVolume(ctx, o.Volume.Name, map[string]any{"metadata": metadata, "spec": spec}); err != nil || !attributed {
		return err
	}
	// After the volume: the step is repeated until this write has succeeded.
	return f.writeCurrentAttributes(ctx, o.Claim)
}

// publishable returns the virtual volume of a claim if it may be created now, else nil. It
// is the last check before package pvcontroller creates the volume.
func (f *Controller) publishable(uid types.UID) *corev1.PersistentVolume {
	o := f.observe(uid, true)
	a, may := decide.Next(o).Action.(steps.CreateVolume)
	if !may {
		// Retry shortly after, once HandedOut is false again.
		f.queue.AddAfter(uid, time.Second/5)
		return nil
	}
	class, err := virtualclass.Parse(o.Class)
	if err != nil {
		return nil
	}
	pv, err := backing.NewVolume(backing.VolumeInput{
		Name: backing.VirtualName(uid), Claim: o.Claim, Class: class,
		Cluster: a.Route.Cluster, ClusterUID: a.Backing.ClusterUID, Backing: a.Backing.Claim, Real: a.Backing.Volume,
	})
	if err != nil {
		f.event(o, &steps.Message{Warning: true, Reason: "CannotPublish", Text: err.Error()})
		return nil
	}
	// Until the API server sets its own time, this one shows for how long storing the
	// volume has been tried.
	pv.CreationTimestamp = metav1.NewTime(o.Now)
	if a.Route.Cluster == keys.Home && a.Backing.Claim.Status.Phase == corev1.ClaimPending {
		// kube-controller-manager binds one claim after the other, and has the twin in hand: what it need not write for the virtual
		// volume after that, nobody waits for.
		pv.Status.Phase = corev1.VolumeBound
	}
	f.Metrics.publish.WithLabelValues(a.Route.Cluster).Observe(o.Now.Sub(f.memory.selectedAt(uid, o.Now)).Seconds())
	return pv
}

// maxText limits the text of an event, in bytes.
const maxText = 2048

// patchClaim changes annotations of a virtual claim if its resource version is unchanged;
// nil removes one.
func (f *Controller) patchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, changes map[string]any) error {
	patch, err := annotationsPatch(claim.UID, claim.ResourceVersion, changes)
	if err != nil {
		return err
	}
	patched, err := f.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("annotate claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	// Until the cache shows this write, a node that was removed must not get another
	// backing claim.
	f.memory.setWritten(claim.UID, virtualClaim, claim, patched)
	return nil
}

// requeuePods removes refusals that no longer apply and writes the claim, so that
// kube-scheduler retries the pods that wait for it.
func (f *Controller) requeuePods(ctx context.Context, o steps.Observation) error {
	active := locality.ActiveRefusals(locality.DecodeRefusals(o.Claim.Annotations[keys.Refused]), o.Now)
	hold := slices.DeleteFunc(active, func(r locality.Refusal) bool { return decide.Outlived(o, r) })
	encoded, err := locality.EncodeRefusals(hold)
	if err != nil {
		return err
	}
	changes := map[string]any{keys.Refused: nil, keys.ClusterChanged: o.Now.UTC().Format(time.RFC3339Nano)}
	if encoded != "" {
		changes[keys.Refused] = encoded
	}
	// Before the write: a change that comes meanwhile needs another write.
	f.memory.retried(o.UID, o.Now)
	if err := f.patchClaim(ctx, o.Claim, changes); err != nil {
		if o.Changed != "" {
			f.memory.setChange(o.UID, o.Changed, o.Now)
		}
		return err
	}
	return nil
}

func (f *Controller) patchVolume(ctx context.Context, name string, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := f.Client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch volume %s: %w", name, err)
	}
	return nil
}

// annotationsPatch returns the patch that sets annotations of the object with this UID and,
// if given, this resource version; it fails for any other.
func annotationsPatch(uid types.UID, version string, changes map[string]any) ([]byte, error) {
	metadata := map[string]any{"uid": uid, "annotations": changes}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encode annotations: %w", err)
	}
	return patch, nil
}

// probe triggers a probe of a cluster after a failed request.
func (f *Controller) probe(cluster string) {
	if cluster == keys.Home {
		return
	}
	if c := f.Clusters.Get(cluster); c != nil {
		c.CheckSoon()
	}
}

// tellAgain is for how long the same event about a claim is not repeated.
const tellAgain = 5 * time.Minute

// event writes an event on the claim, or on the volume if the claim is gone. The same event
// is not repeated for tellAgain.
func (f *Controller) event(o steps.Observation, m *steps.Message) {
	if m == nil {
		return
	}
	// The text may quote a remote cluster, at any length.
	text := sentence.Cut(m.Text, maxText)
	if !f.memory.worthTelling(o.UID, m.Reason+" "+text, o.Now) {
		return
	}
	kind := corev1.EventTypeNormal
	if m.Warning {
		kind = corev1.EventTypeWarning
	}
	// The claim of a released volume is gone, even if the cache still has it.
	released := o.Volume != nil && o.Volume.Status.Phase == corev1.VolumeReleased
	switch {
	case o.Claim != nil && !released:
		f.Recorder.Event(o.Claim, kind, m.Reason, text)
	case o.Volume != nil:
		f.Recorder.Event(o.Volume, kind, m.Reason, text)
	}
}

// worthTelling says whether an event is news for a claim's user: it differs from the last
// one, or that was long ago.
func (m *memory) worthTelling(claim types.UID, what string, now time.Time) (news bool) {
	m.update(claim, func(r *remembered) {
		news = r.lastEvent == nil || r.lastEvent.what != what || now.Sub(r.lastEvent.when) >= tellAgain
		if news {
			r.lastEvent = &noted{what: what, when: now}
		}
	})
	return news
}

// failureEvent writes an event for a step that keeps failing. Errors that go away by
// themselves, such as conflicts, get none.
func (f *Controller) failureEvent(o steps.Observation, step steps.Step, err error) {
	if f.queue.NumRequeues(o.UID) < 5 || errors.Is(err, errChanged) {
		return
	}
	advice := ""
	if step.Cluster() != keys.Home && apierrors.IsForbidden(err) {
		advice = fmt.Sprintf(", and needs home's rights in that namespace: where the remote agent runs, its NamespaceRequest says what is "+
			"wrong, otherwise bind those of deploy/remote-volumes; if it is being deleted and cannot be given them, its administrator must take "+
			"finalizer %s off the claim", keys.BackingFinalizer)
	}
	f.event(o, &steps.Message{Warning: true, Reason: step.Verb() + "Failed", Text: fmt.Sprintf("%v; it is tried again%s", err, advice)})
}

// createBacking creates the backing claim of a route and classifies the answer.
func (f *Controller) createBacking(ctx context.Context, o steps.Observation, a steps.CreateBacking) outcome {
	id := a.Route.Cluster
	client, err := f.client(id)
	if err != nil {
		return outcome{err: err}
	}
	owner := types.NamespacedName{Namespace: o.Claim.Namespace, Name: o.Claim.Name}
	at := f.Place.Of(keys.Home, "", owner, o.UID)
	if id != keys.Home {
		remote, cluster := f.Clusters.Object(id), f.Clusters.Get(id)
		if remote == nil || cluster == nil {
			return outcome{err: errNoClient}
		}
		at = f.Place.Of(id, remote.Spec.Namespaces.Strategy, owner, o.UID)
		if err := cluster.RecordNamespace(ctx, at.Namespace); err != nil {
			return outcome{err: err}
		}
	}
	refused, err := f.refusedBeforeCreate(ctx, client, o, a, at)
	switch {
	case err != nil:
		f.probe(id)
		return outcome{err: err}
	case refused != nil:
		return f.refuse(ctx, o, refused)
	}
	wasUnsent := f.memory.of(o.UID).unsent
	f.memory.setUnsent(o.UID, false)
	claim := route.BackingClaim(o.Claim, a.Route, at, f.Place.HomeID)
	if class, err := virtualclass.Parse(o.Class); err == nil {
		backing.Carry(claim, o.Claim, class)
	}
	claim, err = client.CoreV1().PersistentVolumeClaims(at.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err == nil && claim.Namespace == at.Namespace && claim.Name == at.Name {
		f.memory.setWritten(o.UID, id, nil, claim)
	}
	if apierrors.IsAlreadyExists(err) {
		err = f.examineExisting(ctx, client, o, at)
	}
	sorted := sortCreateError(err, id, at, namespaceState{
		asked: o.Cluster(id).Mapped.Asked, fresh: f.queue.NumRequeues(o.UID) < freshAttempts})
	switch {
	case sorted.refusal != nil:
		return f.refuse(ctx, o, sorted.refusal)
	case sorted.retry != nil:
		if wasUnsent && sorted.unsent {
			f.memory.setUnsent(o.UID, true)
		}
		f.probe(id)
		return outcome{err: fmt.Errorf("create backing claim %s in %s: %w", at, id, sorted.retry)}
	}
	if cluster := f.Clusters.Get(id); cluster != nil {
		cluster.Expect(at.Namespace)
	}
	return outcome{after: safetyNet}
}

// refusedBeforeCreate says why the cluster of a route cannot take the backing claim, as far
// as that can be checked only right before it is created; nil if it can.
func (f *Controller) refusedBeforeCreate(ctx context.Context, client kubernetes.Interface, o steps.Observation, a steps.CreateBacking,
	at types.NamespacedName) (*steps.Refusal, error) {
	if source := a.Route.Source; source.Name != "" && source.Namespace != at.Namespace {
		// The RemoteCluster's namespace mapping has changed since the source was created.
		return &steps.Refusal{Cluster: a.Route.Cluster, Reason: "SourceInOtherNamespace", Message: fmt.Sprintf(
			"real claim %s, which this one is to be a copy of, is not in namespace %s of cluster %s, where the copy would be: copy the "+
				"data with a pod", source, at.Namespace, a.Route.Cluster)}, nil
	}
	return f.checkAttributes(ctx, client, a.Route.Cluster, o.Claim, a.Route.Driver())
}

// checkAttributes says why a cluster cannot give a driver's volume the attributes that a
// claim requests; nil if it can, or if the claim requests none. driver is empty if it is
// not known.
func (f *Controller) checkAttributes(ctx context.Context, client kubernetes.Interface, cluster string, claim *corev1.PersistentVolumeClaim,
	driver string) (*steps.Refusal, error) {
	name := backing.Attributes(claim)
	if name == "" {
		return nil, nil
	}
	place := "cluster " + cluster
	if cluster == keys.Home {
		place = "the home cluster"
	}
	refuse := func(text string, details ...any) (*steps.Refusal, error) {
		return &steps.Refusal{Cluster: cluster, Reason: "NoAttributesClass", Message: fmt.Sprintf(text, details...)}, nil
	}
	class, err := client.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return refuse("%s has no VolumeAttributesClass %q: create it there, or choose another for the claim", place, name)
	case apierrors.IsForbidden(err):
		return refuse("%s does not let its VolumeAttributesClasses be read, so whether it has %q is not known: apply Lodestone's "+
			"manifests there anew", place, name)
	case err != nil:
		return nil, fmt.Errorf("look for VolumeAttributesClass %s in %s: %w", name, cluster, err)
	case driver != "" && class.DriverName != driver:
		return refuse("VolumeAttributesClass %q in %s is for driver %q, but the volume's is %q: choose another for the claim", name, place,
			class.DriverName, driver)
	}
	return nil, nil
}

// refuse reschedules a claim without a backing claim.
func (f *Controller) refuse(ctx context.Context, o steps.Observation, refused *steps.Refusal) outcome {
	f.event(o, &steps.Message{Warning: true, Reason: refused.Reason, Text: refused.Message})
	err := f.reschedule(ctx, o, refused)
	f.enqueueSiblings(o)
	return outcome{err: err}
}

// enqueueSiblings queues the other claims of the same pods: they wait for this one, or must
// now go elsewhere with it.
func (f *Controller) enqueueSiblings(o steps.Observation) {
	if o.Claim == nil {
		return
	}
	// Not o.Siblings: a claim that other pods use too has none, but other claims wait for
	// it.
	self := o.Claim.Namespace + "/" + o.Claim.Name
	for _, pod := range f.Sources.PodsOf(self) {
		for _, name := range pod.Claims {
			if claim := controller.Get[corev1.PersistentVolumeClaim](f.Sources.Claims, name); name != self && claim != nil &&
				claim.Spec.VolumeName == "" {
				f.Enqueue(claim.UID)
			}
		}
	}
}

// createResult classifies the answer to a create request for a backing claim: it exists
// (all fields empty), it certainly does not exist and the cluster refuses it, or the
// outcome is unknown.
type createResult struct {
	refusal *steps.Refusal
	retry   error
	// unsent is true if the request certainly never left this process.
	unsent bool
}

// namespaceState is the state of the namespace of a create request.
type namespaceState struct {
	// asked: the cluster created it on request; fresh: this is one of the first attempts,
	// and the rights there may be seconds old.
	asked, fresh bool
}

// sortCreateError is the table of all answers to a create request.
func sortCreateError(err error, cluster string, at types.NamespacedName, in namespaceState) createResult {
	place := "cluster " + cluster
	if cluster == keys.Home {
		place = "the home cluster"
	}
	refuse := func(reason, text string) createResult {
		return createResult{refusal: &steps.Refusal{Cluster: cluster, Reason: reason, Message: text}}
	}
	detail := ""
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		detail = status.Status().Message
	}
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil:
		return createResult{}
	case errors.Is(err, errForeign):
		return refuse("ForeignClaim", fmt.Sprintf("%s already has a claim %s that does not belong to this one: remove or rename one of the two",
			place, at))
	case errors.Is(err, errTerminating):
		return createResult{retry: err}
	case apierrors.HasStatusCause(err, "NamespaceTerminating"):
		return refuse("NamespaceTerminating", fmt.Sprintf("namespace %s of %s is being deleted: wait until it is there again", at.Namespace,
			place))
	case apierrors.IsForbidden(err) && strings.Contains(detail, "exceeded quota"):
		return refuse("QuotaExceeded", fmt.Sprintf("the quota of namespace %s in %s leaves no room: %s", at.Namespace, place, detail))
	case apierrors.IsForbidden(err) && strings.Contains(detail, "storage usage per PersistentVolumeClaim"):
		return refuse("OutsideLimits", fmt.Sprintf("a LimitRange of namespace %s in %s does not allow a claim of that size: %s", at.Namespace,
			place, detail))
	case in.asked && in.fresh && (apierrors.IsNotFound(err) || lacksRights(err, detail)):
		return createResult{retry: err, unsent: true}
	case in.asked && (apierrors.IsNotFound(err) || lacksRights(err, detail)):
		return refuse("NotAllowed", fmt.Sprintf("%s gave namespace %s but does not let this cluster make claims there: let its administrator "+
			"look at NamespaceRequest %s", place, at.Namespace, at.Namespace))
	case in.asked && apierrors.IsForbidden(err):
		return refuse("NotAllowed", fmt.Sprintf("%s does not admit the backing claim %s: %s", place, at, detail))
	case apierrors.IsForbidden(err):
		return refuse("NotAllowed", fmt.Sprintf("%s does not allow the backing claim %s (no such namespace, no rights in it, or its admission; "+
			"see deploy/remote-volumes): %s", place, at, detail))
	case apierrors.IsNotFound(err):
		return refuse("NamespaceMissing", fmt.Sprintf("%s has no namespace %s: create it there and bind the rights (see deploy/remote-volumes)",
			place, at.Namespace))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.ReasonForError(err) == metav1.StatusReasonNotAcceptable:
		return refuse("NotValid", fmt.Sprintf("%s does not accept the backing claim %s: %s", place, at, detail))
	case errors.As(err, &dial) && dial.Op == "dial", errors.As(err, &certificate), apierrors.IsUnauthorized(err),
		apierrors.IsTooManyRequests(err):
		// The request was not sent, or certainly had no effect.
		return createResult{retry: err, unsent: true}
	}
	// Conflict, server error, timeout, lost connection: the outcome is unknown or may soon
	// be different.
	return createResult{retry: err}
}

// lacksRights says whether a request was refused for lack of rights, not by an admission
// plugin.
func lacksRights(err error, detail string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(detail, "cannot create resource")
}

// errForeign: somebody else's claim has the name of a backing claim. errTerminating: an
// earlier backing claim of ours still has it.
var (
	errForeign     = errors.New("a claim of that name is there already and is not ours")
	errTerminating = errors.New("an earlier claim of that name is still being deleted")
)

// examineExisting reads the claim that already has the name of a backing claim.
func (f *Controller) examineExisting(ctx context.Context, client kubernetes.Interface, o steps.Observation,
	at types.NamespacedName) error {
	have, err := client.CoreV1().PersistentVolumeClaims(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("look at claim %s: %w", at, err)
	case backing.IsOf(have, o.UID, f.Place.HomeID):
		return nil
	case have.Labels[keys.HomeID] == f.Place.HomeID && f.isGoing(have):
		return errTerminating
	}
	return errForeign
}

// isGoing says whether a backing claim of ours for an earlier claim is being deleted or
// soon will be. One whose volume is retained stays.
func (f *Controller) isGoing(b *corev1.PersistentVolumeClaim) bool {
	if b.DeletionTimestamp != nil || backing.Unpublished(b) {
		return true
	}
	earlier := f.Sources.Virtual(types.UID(b.Labels[keys.ClaimUID]))
	return earlier != nil && earlier.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
}

// lockClaim makes new pods of a claim wait, as a move does, once the API servers confirm that its volume does not stand for the newest
// data: caches lag behind each other, as right after a move. To which volume a twin is bound never changes. The controller of moves takes
// the lock off when that is over.
func (f *Controller) lockClaim(ctx context.Context, o steps.Observation) error {
	if f.Held != nil && f.Held(o.UID) {
		return fmt.Errorf("claim %s is being moved: %w", o.Claim.Name, errChanged)
	}
	if o.Standing.Behind() {
		if err := f.confirmBehind(ctx, o); err != nil {
			return err
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.Claim.UID, "resourceVersion": o.Claim.ResourceVersion,
		"labels":      map[string]any{keys.Moving: keys.MovingNow},
		"annotations": map[string]any{keys.Move: keys.NoMove, keys.Newer: orNil(decide.NewerRef(o))},
	}})
	if err != nil {
		return fmt.Errorf("encode lock: %w", err)
	}
	written, err := f.Client.CoreV1().PersistentVolumeClaims(o.Claim.Namespace).Patch(ctx, o.Claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("lock claim %s/%s: %w", o.Claim.Namespace, o.Claim.Name, err)
	}
	f.memory.setWritten(o.UID, virtualClaim, o.Claim, written)
	return nil
}

// confirmBehind asks the API servers for the volume of a claim and for what seems to be newer.
func (f *Controller) confirmBehind(ctx context.Context, o steps.Observation) error {
	volume, err := f.Client.CoreV1().PersistentVolumes().Get(ctx, o.Volume.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look at volume %s: %w", o.Volume.Name, err)
	}
	refs := []backing.Ref{o.Standing.Current}
	for _, b := range o.Standing.Newer {
		refs = append(refs, b.Ref())
	}
	var live []backing.Copy
	for _, ref := range refs {
		client, err := f.client(ref.Cluster)
		if err != nil && ref == o.Standing.Current {
			// What it stands for need not answer.
			continue
		}
		if err != nil {
			return err
		}
		b, err := client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err != nil && ref == o.Standing.Current:
			continue
		case err != nil:
			f.probe(ref.Cluster)
			return fmt.Errorf("look at real claim %s in %s: %w", ref.Key(), ref.Cluster, err)
		}
		if ref.Cluster != keys.Home {
			if _, err := remote.Trusted(b); err != nil {
				return fmt.Errorf("read real claim %s in %s: %w", ref.Key(), ref.Cluster, err)
			}
		}
		live = append(live, backing.Copy{Cluster: ref.Cluster, Claim: b})
	}
	claim := types.NamespacedName{Namespace: o.Claim.Namespace, Name: o.Claim.Name}
	if volume.UID != o.Volume.UID || !f.Place.Compare(volume, claim, o.UID, live).Behind() {
		return fmt.Errorf("volume %s stands for the newest data of claim %s: %w", volume.Name, claim, errChanged)
	}
	return nil
}
