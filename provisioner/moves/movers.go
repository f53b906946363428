// This file starts, watches and ends the movers of a move. It is long because it has the pod of a mover, too, whose every field
// depends on what the mover may do.

package moves

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/moverapi"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
	"github.com/lodestone-storage/lodestone/provisioner/moves/steps"
	"github.com/lodestone-storage/lodestone/provisioner/site"
	"github.com/lodestone-storage/lodestone/provisioner/witness"
)

// This file has a move's movers: their pods, Secrets and Services, from creation to the reason why one cannot run. It is
// long because what is created is checked and removed in the same place.

// ensureMover creates a mover, without starting it.
func (c *Controller) ensureMover(ctx context.Context, r *record.Record, a steps.EnsureMover) error {
	i, end := a.Claim, a.End
	at, err := c.sites.At(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return err
	}
	namespace, name := r.Claims[i].At(end).Ref.Namespace, r.MoverName(i, end)
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: c.moverLabels(r)}
	node, err := c.nodeFor(ctx, at, r, i, end)
	if err != nil {
		return err
	}
	spec := c.moverSpec(r, i, end, cmp.Or(a.Node, node))
	if a.Near != "" {
		spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 100,
			Preference: onNode(a.Near)}}
	}
	if at.Home {
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: keys.MovingGate}}
		_, err = at.Client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
	} else {
		if at.Remote == nil {
			return site.ErrUnreachable(fmt.Sprintf("cluster %s runs no remote agent, which a move needs: install deploy/remote there",
				r.Claims[i].At(end).Ref.Cluster))
		}
		meta.Finalizers = []string{keys.ShadowPodFinalizer}
		_, err = at.Remote.ShadowPods(namespace).Create(ctx, &remotev1alpha1.ShadowPod{ObjectMeta: meta, Spec: remotev1alpha1.ShadowPodSpec{
			Home: remotev1alpha1.HomePod{Cluster: c.Place.HomeID, Namespace: r.Namespace, Name: r.Name, UID: r.UID},
			Pod:  corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: c.moverLabels(r)}, Spec: spec},
		}}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make mover %s/%s: %w", namespace, name, err)
	}
	return nil
}

// nodeFor returns the node that a mover must run on; empty for any.
func (c *Controller) nodeFor(ctx context.Context, at site.Site, r *record.Record, i int, end record.End) (string, error) {
	if end == record.Target {
		return r.Claims[i].Target.Node, nil
	}
	// A claim from a snapshot is best created where its source can be used.
	copied := r.Claims[i].Source
	namespace, claim, options := r.Namespace, r.Claims[i].Name, metav1.ListOptions{}
	if !at.Home {
		namespace, claim, options.LabelSelector = copied.Ref.Namespace, copied.Ref.Name, keys.HomeID+"="+c.Place.HomeID
	}
	node, ending, mover := "", "", r.MoverName(i, end)
	err := site.EachPage(ctx, options, at.Client.CoreV1().Pods(namespace).List, func(page *corev1.PodList) {
		for j := range page.Items {
			pod := &page.Items[j]
			switch {
			case pod.Spec.NodeName == "" || finished(pod) || !witness.Uses(&pod.Spec, claim) || pod.Name == mover:
			case pod.DeletionTimestamp == nil:
				node = cmp.Or(node, pod.Spec.NodeName)
			default:
				ending = pod.Spec.NodeName
			}
		}
	})
	if err != nil {
		return "", fmt.Errorf("list pods that use claim %s: %w", r.Claims[i].Name, err)
	}
	// The volume may still be on the node of a pod that is ending.
	return cmp.Or(node, ending), nil
}

// startMover creates the keys of an end's mover and starts it. It is a step of its own, so
// that a late request to create a mover starts nothing.
func (c *Controller) startMover(ctx context.Context, r *record.Record, i int, end record.End) error {
	at, err := c.sites.At(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return err
	}
	namespace, name := r.Claims[i].At(end).Ref.Namespace, r.MoverName(i, end)
	owner, err := moverOwner(ctx, at, namespace, name)
	if err != nil {
		return err
	}
	if err := c.createKeySecret(ctx, at, r, i, end, owner); err != nil {
		return err
	}
	if at.Home {
		return c.ungate(ctx, namespace, steps.Pod{Name: name, UID: owner.UID})
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"start":true}}`, owner.UID)
	if _, err := at.Remote.ShadowPods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("start mover %s/%s: %w", namespace, name, err)
	}
	return nil
}

// moverOwner reads a mover and returns it as the owner of its Secret.
func moverOwner(ctx context.Context, at site.Site, namespace, name string) (owner metav1.OwnerReference, err error) {
	var mover metav1.Object
	if at.Home {
		mover, err = at.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		owner.APIVersion, owner.Kind = "v1", "Pod"
	} else {
		mover, err = at.Remote.ShadowPods(namespace).Get(ctx, name, metav1.GetOptions{})
		owner.APIVersion, owner.Kind = remotev1alpha1.GroupVersion.String(), "ShadowPod"
	}
	if err != nil {
		return owner, fmt.Errorf("look at mover %s/%s: %w", namespace, name, err)
	}
	owner.Name, owner.UID = name, mover.GetUID()
	return owner, nil
}

// createKeySecret creates the Secret with the keys of a mover that was not started. The
// mover owns it: if the Secret is created late, when the mover is gone, garbage collection
// deletes it, and nobody needs the right to read Secrets to find it.
func (c *Controller) createKeySecret(ctx context.Context, at site.Site, r *record.Record, i int, end record.End,
	owner metav1.OwnerReference) error {
	secret, err := c.keySecret(r, i, end, owner)
	if err != nil {
		return err
	}
	secrets := at.Client.CoreV1().Secrets(secret.Namespace)
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// An existing one may belong to an earlier mover of this name, and be collected
		// with that.
		if err := site.IgnoreGone(secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{}), "replace Secret of mover "+secret.Namespace+"/"+
			secret.Name); err != nil {
			return err
		}
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make Secret of mover %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// keySecret returns the Secret with the keys of a mover, which owns it.
func (c *Controller) keySecret(r *record.Record, i int, end record.End, owner metav1.OwnerReference) (*corev1.Secret, error) {
	role := moverapi.Sender
	if end == record.Target {
		role = moverapi.Receiver
	}
	data := map[string][]byte(maps.Clone(r.Claims[i].Keys[role]))
	if store := r.Claims[i].Store; store != nil {
		files, err := store.Ticket.Files()
		if err != nil {
			return nil, err
		}
		maps.Copy(data, files)
	}
	meta := metav1.ObjectMeta{
		Namespace: r.Claims[i].At(end).Ref.Namespace, Name: owner.Name, Labels: c.moverLabels(r), OwnerReferences: []metav1.OwnerReference{owner},
	}
	return &corev1.Secret{ObjectMeta: meta, Data: data}, nil
}

// recreateKeySecret creates the Secret of a started mover if there is none: a late request
// to delete an earlier one, or somebody else, may have deleted it. Without the right to
// read Secrets that cannot be observed. The mover's node waits for the Secret.
func (c *Controller) recreateKeySecret(ctx context.Context, r *record.Record, i int, end record.End) error {
	at, err := c.sites.At(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return err
	}
	owner, err := moverOwner(ctx, at, r.Claims[i].At(end).Ref.Namespace, r.MoverName(i, end))
	if err != nil {
		return err
	}
	secret, err := c.keySecret(r, i, end, owner)
	if err != nil {
		return err
	}
	_, err = at.Client.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make Secret of mover %s/%s again: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// dropMover deletes the mover of an end and its keys.
func (c *Controller) dropMover(ctx context.Context, r *record.Record, i int, end record.End) error {
	at, err := c.sites.At(r.Claims[i].At(end).Ref.Cluster)
	if err != nil {
		return err
	}
	namespace, name := r.Claims[i].At(end).Ref.Namespace, r.MoverName(i, end)
	err = at.Client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove Secret of mover %s/%s: %w", namespace, name, err)
	}
	if at.Home {
		err = at.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(gracePeriod(r, i, end, 1))})
	} else {
		err = at.Remote.ShadowPods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove mover %s/%s: %w", namespace, name, err)
	}
	return nil
}

// moverAt reads the mover of an end. pod is nil if there is none.
func (c *Controller) moverAt(ctx context.Context, at site.Site, r *record.Record, i int, end record.End) (m steps.Mover, pod *corev1.Pod,
	err error) {
	defer func() { m.Problem = plain(m.Problem) }()
	ref, name := r.Claims[i].At(end).Ref, r.MoverName(i, end)
	namespace := ref.Namespace
	var shadow *remotev1alpha1.ShadowPod
	if at.Remote != nil {
		shadow, err = at.Remote.ShadowPods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && shadow.Labels[keys.MoveOf] == string(r.UID):
			m.Exists, m.Leaving = true, shadow.DeletionTimestamp != nil
			m.Unstarted = !shadow.Spec.Start
			m.Ended = shadow.Status.Phase == remotev1alpha1.ShadowPodLost
			m.Problem = shadow.Status.Message
		case err != nil && !apierrors.IsNotFound(err):
			return m, nil, fmt.Errorf("look at ShadowPod %s/%s: %w", namespace, name, err)
		default:
			shadow = nil
		}
	}
	pod, err = at.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if pod, err = site.FoundOrNil(at, pod, err, fmt.Sprintf("mover %s/%s", namespace, name)); err != nil {
		return m, nil, err
	}
	if pod == nil {
		if m.Exists && !m.Leaving && !m.Unstarted && m.Problem == "" {
			m.Problem = whyNotRunning(ctx, at, ref, nil)
		}
		return m, nil, nil
	}
	if at.Remote != nil && !isPodOf(shadow, pod) {
		// Anybody who may create pods in that namespace can use a mover's name.
		if m.Problem == "" {
			m.Problem = fmt.Sprintf("pod %s/%s is there already and is no mover: delete it", namespace, name)
		}
		return m, nil, nil
	}
	m.Exists, m.Pod, m.IPs, m.Node = true, pod.UID, addressesOf(pod), pod.Spec.NodeName
	m.Unstarted = m.Unstarted || at.Home && podOf(pod).Gated
	m.Leaving = m.Leaving || pod.DeletionTimestamp != nil
	m.Ended = m.Ended || finished(pod)
	if problem := problemOf(pod); problem != "" {
		m.Problem = problem
	}
	m.Running = !m.Leaving && !m.Ended && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" &&
		!slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running == nil })
	if !m.Running && !m.Leaving && m.Problem == "" {
		m.Problem = whyNotRunning(ctx, at, ref, pod)
	}
	return m, pod, nil
}

// isPodOf says whether a pod was created for a ShadowPod. The ShadowPod may be gone before
// its pod, and its status may not name the pod yet.
func isPodOf(shadow *remotev1alpha1.ShadowPod, pod *corev1.Pod) bool {
	if pod.UID == "" {
		return false
	}
	if shadow != nil && shadow.Status.PodUID == pod.UID {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ShadowPod" && owner.Name == pod.Name && (shadow == nil || owner.UID == shadow.UID)
}

// addressesOf returns the addresses in a pod's status.
func addressesOf(pod *corev1.Pod) []string {
	var found []string
	for _, ip := range pod.Status.PodIPs {
		found = append(found, ip.IP)
	}
	return found
}

// problemOf describes what keeps a pod from running, according to its status.
func problemOf(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Message != "" {
		// For example because its node had too little memory or disk left.
		return fmt.Sprintf("its node %s ended it (%s): %s", pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)
	}
	for _, condition := range pod.Status.Conditions {
		// A mover waits at its gate for its keys, which is no problem.
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse &&
			condition.Reason != corev1.PodReasonSchedulingGated {
			return condition.Message
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" {
			return waiting.Reason + " " + waiting.Message
		}
		if ended := status.State.Terminated; ended != nil {
			return fmt.Sprintf("its program ended with code %d (%s %s) and is started again: see the log of pod %s/%s", ended.ExitCode, ended.Reason,
				ended.Message, pod.Namespace, pod.Name)
		}
	}
	return ""
}

// warningsAfter is how long a mover may take to start before its events are read.
const warningsAfter = 2 * time.Second

// whyNotRunning says why a mover does not run whose status gives no reason: the state of
// its pod, and the latest warning about the pod or its claim. pod is nil while a ShadowPod
// has none.
func whyNotRunning(ctx context.Context, at site.Site, ref backing.Ref, pod *corev1.Pod) string {
	if pod == nil {
		return "the remote agent of cluster " + ref.Cluster + " has not made its pod yet: if this lasts, see whether the agent runs, and the " +
			"events of the ShadowPod there"
	}
	text := "it starts on node " + pod.Spec.NodeName
	if pod.Spec.NodeName == "" {
		text = "it has no node yet"
		if claim, err := at.Claim(ctx, ref.Namespace, ref.Name); err == nil && claim != nil && claim.Status.Phase != corev1.ClaimBound {
			text += fmt.Sprintf(", and its real claim %s is %s", ref.Key(), claim.Status.Phase)
		}
	}
	// The clock of the cluster may be ahead.
	if age := time.Since(pod.CreationTimestamp.Time); age >= 0 && age < warningsAfter {
		return text
	}
	warned := lastWarning(ctx, at, ref.Namespace, pod.Name, pod.UID)
	if warned == "" {
		warned = lastWarning(ctx, at, ref.Namespace, ref.Name, "")
	}
	if warned == "" {
		return text
	}
	return text + ": " + warned
}

// lastWarning returns the latest warning about the object of a name, and of a UID unless that is empty; empty if there is none or
// events cannot be read: they are for people only, and no decision depends on them.
func lastWarning(ctx context.Context, at site.Site, namespace, name string, uid types.UID) string {
	list, err := at.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.name": name, "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil {
		return ""
	}
	var last *corev1.Event
	for i := range list.Items {
		event := &list.Items[i]
		// An earlier mover had the same name.
		if event.InvolvedObject.Name != name || uid != "" && event.InvolvedObject.UID != "" && event.InvolvedObject.UID != uid {
			continue
		}
		if last == nil || !eventTime(event).Before(eventTime(last)) {
			last = event
		}
	}
	if last == nil {
		return ""
	}
	return last.Reason + ": " + last.Message
}

// eventTime is when an event last happened.
func eventTime(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	if event.LastTimestamp.IsZero() {
		return event.EventTime.Time
	}
	return event.LastTimestamp.Time
}

// keysAfter is how long a started mover may take to run before its keys are created again,
// repeatedly: less than people would wait, more than pulling most images takes.
const keysAfter = 20 * time.Second

// keylessMovers has the pods of movers that were started, have a node and do not run, with
// the time when their keys are created again, by home's clock.
type keylessMovers map[types.UID]time.Time

// note updates the pods, and marks movers that may lack their keys.
func (t *keylessMovers) note(o *steps.Observation) {
	next := keylessMovers{}
	for i := range o.Claims {
		seen := &o.Claims[i]
		for _, m := range []*steps.Mover{&seen.Source.Mover, &seen.Target.Mover, &seen.Snapshot.Mover} {
			if m.Pod == "" || m.Node == "" || m.Running || m.Unstarted || m.Leaving || m.Ended {
				continue
			}
			at, known := (*t)[m.Pod]
			m.Keyless = known && !o.Now.Before(at)
			if !known || m.Keyless {
				at = o.Now.Add(keysAfter)
			}
			next[m.Pod] = at
		}
	}
	*t = next
}

// Ports of a mover.
const (
	dataPort    = 8440
	controlPort = 8441
)

// capabilities are what a mover needs to preserve owners, modes, devices and capabilities
// of files. Pod Security level baseline allows each.
var capabilities = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"}

// moverSpec is the pod spec of a mover: the volume, its keys, space for manifests, and no
// access to the cluster. node is where it must run; empty: anywhere in that cluster.
func (c *Controller) moverSpec(r *record.Record, i int, end record.End, node string) corev1.PodSpec {
	name, word := r.MoverName(i, end), "receive"
	scratch := c.scratchLimit(r.Claims[i].Volume)
	args := []string{"--move=" + r.KeysOf(i), "--keys=/keys", "--volume=/volume", "--scratch=/scratch",
		fmt.Sprintf("--scratch-limit=%d", scratch), fmt.Sprintf("--data-address=:%d", dataPort)}
	ports := []corev1.ContainerPort{{Name: "data", ContainerPort: dataPort}}
	switch {
	case end == record.Target && !record.Before(r.Phase, v1alpha1.MoveFinalSync):
		args = append(args, "--no-snapshot")
	case end == record.Snapped:
		args = append(args, "--snapshot")
	}
	if end != record.Target {
		word = "send"
		args = append(args, fmt.Sprintf("--control-address=:%d", controlPort))
		ports = append(ports, corev1.ContainerPort{Name: "control", ContainerPort: controlPort})
	}
	var term corev1.NodeSelectorTerm
	if node != "" {
		term = onNode(node)
	}
	term.MatchExpressions = []corev1.NodeSelectorRequirement{{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist}}
	spec := corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		// Its scratch survives a crash of the program.
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: ptr.To(gracePeriod(r, i, end, 5)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: ptr.To(int64(0)), RunAsGroup: ptr.To(int64(0)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
		}},
		// It must run where the volume is.
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "mover", Image: c.Image, Command: []string{"/lodestone-mover", word}, Args: args, Ports: ports,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
					// Without this the request would equal the limit, and no node might
					// have room for it.
					corev1.ResourceEphemeralStorage: resource.MustParse("0"),
				},
				Limits: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
					// Otherwise a namespace's default limit would apply, which may be too
					// small: the mover would be evicted.
					corev1.ResourceEphemeralStorage: *resource.NewQuantity(scratch+2*scratchMargin, resource.BinarySI),
				},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "volume", MountPath: "/volume"}, {Name: "keys", MountPath: "/keys", ReadOnly: true}, {Name: "scratch", MountPath: "/scratch"},
			},
		}},
		Volumes: []corev1.Volume{
			// Not read-only: the last pass syncs the file system, and another pod on the
			// node has it mounted for writing.
			{Name: "volume",
				VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: r.Claims[i].At(end).Ref.Name},
				}},
			{Name: "keys",
				VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: ptr.To(int32(0o400))}}},
			{Name: "scratch",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(scratch+scratchMargin,
					resource.BinarySI)}}},
		},
	}
	if known := r.Claims[i].Level; known != "" && end != record.Target {
		// Set the level only: tenants must not choose a process's type, user or role. At
		// the target nobody has the volume yet, and the first pod relabels it.
		spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: known}
	}
	if r.Claims[i].Store != nil {
		// Restic needs more, see docs/benchmarks.md.
		spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("256Mi")
	}
	c.mountRepository(&spec, r, i, end)
	if isBlock(r.Claims[i].Volume) {
		mover := &spec.Containers[0]
		mover.Args = append(mover.Args, "--block")
		mover.VolumeMounts = mover.VolumeMounts[1:]
		mover.VolumeDevices = []corev1.VolumeDevice{{Name: "volume", DevicePath: "/volume"}}
	}
	return spec
}

// repositoryGrace is how many seconds a mover may take to delete the move's data in a
// repository; its own timeout is a little shorter.
const repositoryGrace = 30

// gracePeriod is the termination grace period of a mover in seconds; otherwise is that of
// one without a repository.
func gracePeriod(r *record.Record, i int, end record.End, otherwise int64) int64 {
	if r.Claims[i].Store != nil && end != record.Target {
		return repositoryGrace
	}
	return otherwise
}

// scratchMargin is more than the difference between the sizes of a mover's files and what
// they and its log take on a disk. So the mover stops with an error message before its node
// evicts it.
const scratchMargin = 256 << 20

// scratchLimit is how many bytes a volume's mover may store on the disk of its node: as
// configured, else enough for a volume full of files of 16 KiB, or for one that holds more
// than its capacity.
func (c *Controller) scratchLimit(volume *corev1.PersistentVolume) int64 {
	if c.Scratch > 0 {
		return c.Scratch
	}
	const least, part = 4 << 30, 16
	if volume == nil {
		return least
	}
	return least + volume.Spec.Capacity.Storage().Value()/part
}

// onNode selects the node with this name.
func onNode(name string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField,
		Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
}

// moverLabels are the labels of a mover and its Secret.
func (c *Controller) moverLabels(r *record.Record) map[string]string {
	return map[string]string{keys.MoveOf: string(r.UID), keys.HomeID: c.Place.HomeID, keys.PodUID: string(r.UID)}
}

// isBlock says whether a volume is a block device.
func isBlock(volume *corev1.PersistentVolume) bool {
	return volume != nil && ptr.Deref(volume.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock
}

// repositoryPath is the mount path of a repository claim in movers.
const repositoryPath = "/repository"

// mountRepository mounts the repository claim in a mover, if the repository is a claim. The
// mover sees the data of moves of its own namespace only; at the target the mount is
// read-only.
func (c *Controller) mountRepository(spec *corev1.PodSpec, r *record.Record, i int, end record.End) {
	store := r.Claims[i].Store
	if store == nil || store.Ticket.Claim == "" {
		return
	}
	mover := &spec.Containers[0]
	mover.Args = append(mover.Args, "--repository="+repositoryPath)
	mover.VolumeMounts = append(mover.VolumeMounts, corev1.VolumeMount{
		Name: "repository", MountPath: repositoryPath, SubPath: path.Join("lodestone-moves", c.Place.HomeID, r.Namespace),
		ReadOnly: end == record.Target,
	})
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name:         "repository",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: store.Ticket.Claim}},
	})
}
