package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// Limits, in bytes, for events of a remote cluster.
const (
	maxEventText   = 1024 // API servers take no longer ones
	maxEventSource = 128
	maxEventName   = 253
	maxUID         = 63
	// readEventText is how much is looked at of a text.
	readEventText = 4 * maxEventText
)

// eventReporter is the program that is named as the reporter of such events.
const eventReporter = "lodestone-virtualnode"

// Event returns the event on a home pod that says what an event of the remote cluster says about its
// remote pod; false for one that is not shown: of another kind, with no usable reason, or about the
// pod's node, which home has already said. The UID of the remote pod is not looked at.
//
// Nothing of it is trusted: what is kept is the type, the reason, who says it, which container it is
// about, how often it was said and the text, all of limited length. The times are home's. The name
// depends only on the home pod and the remote event, so that each is one event here, however often it
// is seen. Nothing in the result shares memory with the remote event.
func Event(cluster string, home *corev1.Pod, there *corev1.Event, now metav1.Time) (*corev1.Event, bool) {
	if there.Reason == "Scheduled" && there.Type != corev1.EventTypeWarning {
		return nil, false
	}
	return event(cluster, corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: home.Namespace, Name: home.Name, UID: home.UID,
		FieldPath: containerPath(&home.Spec, there.InvolvedObject.FieldPath),
	}, there, now)
}

// ClaimEvent is Event for a claim of the remote cluster that is for one of a home namespace. The result has the name and the UID of the
// claim there: the caller puts in those of home's before it is written.
func ClaimEvent(cluster, namespace string, there *corev1.Event, now metav1.Time) (*corev1.Event, bool) {
	about := there.InvolvedObject
	if len(about.UID) > maxUID || len(about.Name) > maxEventName || len(validation.IsDNS1123Subdomain(about.Name)) > 0 {
		return nil, false
	}
	return event(cluster, corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: strings.Clone(about.Name),
		UID: types.UID(strings.Clone(string(about.UID))),
	}, there, now)
}

// event returns an event on an object of home that says what one of the remote cluster says about an object of the same kind there.
func event(cluster string, on corev1.ObjectReference, there *corev1.Event, now metav1.Time) (*corev1.Event, bool) {
	about := there.InvolvedObject
	switch {
	case about.Kind != on.Kind || about.Namespace != there.Namespace || about.UID == "" || there.UID == "":
		return nil, false
	case !sentence.IsReason(there.Reason):
		return nil, false
	}
	kind := corev1.EventTypeNormal
	if there.Type == corev1.EventTypeWarning {
		kind = corev1.EventTypeWarning
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: on.Namespace, Name: eventName(on, there.UID), Labels: map[string]string{keys.Cluster: cluster},
		},
		InvolvedObject: on,
		Type:           kind, Reason: strings.Clone(there.Reason), Message: eventText(cluster, on, there),
		Source:              corev1.EventSource{Component: speaker(there) + ", cluster " + cluster},
		ReportingController: eventReporter,
		Count:               count(there), FirstTimestamp: now, LastTimestamp: now,
	}, true
}

// eventName returns the name of the event at home for one of the remote cluster.
func eventName(on corev1.ObjectReference, there types.UID) string {
	sum := sha256.Sum256([]byte(string(on.UID) + "/" + string(there)))
	end := "." + hex.EncodeToString(sum[:8])
	return strings.TrimRight(sentence.Cut(on.Name, maxEventName-len(end)), "-.") + end
}

// eventText returns the text of a remote event, with the names that the object has at home.
func eventText(cluster string, on corev1.ObjectReference, there *corev1.Event) string {
	text := sentence.Plain(there.Message[:min(len(there.Message), readEventText)], readEventText)
	text = strings.ReplaceAll(text, string(there.InvolvedObject.UID), string(on.UID))
	if there.Namespace != on.Namespace {
		// As schedulers and kubelets write names: namespace/name, and name_namespace(uid).
		text = strings.NewReplacer(there.Namespace+"/", on.Namespace+"/", "_"+there.Namespace+"(", "_"+on.Namespace+"(").Replace(text)
	}
	return strings.Clone(sentence.Short(sentence.Of(cluster, strings.TrimSpace(text)), maxEventText))
}

// speaker returns the program that a remote event is from, as far as that is a name.
func speaker(there *corev1.Event) string {
	name := there.Source.Component
	if name == "" {
		name = there.ReportingController
	}
	letter := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._/", r)
	}
	if name == "" || len(name) > maxEventSource || strings.ContainsFunc(name, func(r rune) bool { return !letter(r) }) {
		return "a program"
	}
	return strings.Clone(name)
}

// containerPath returns the path of a container if it is one of the pod's, and else nothing.
func containerPath(spec *corev1.PodSpec, path string) string {
	is := func(kind, name string) bool { return path == "spec."+kind+"{"+name+"}" }
	switch {
	case slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return is("containers", c.Name) }),
		slices.ContainsFunc(spec.InitContainers, func(c corev1.Container) bool { return is("initContainers", c.Name) }),
		slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return is("ephemeralContainers", c.Name) }):
		return strings.Clone(path)
	}
	return ""
}

// count returns how often a remote event was said, at least once.
func count(there *corev1.Event) int32 {
	said := there.Count
	if there.Series != nil {
		said = max(said, there.Series.Count)
	}
	return max(said, 1)
}
