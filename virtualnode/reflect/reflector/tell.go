package reflector

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// refusal is the error of a step that is in vain until somebody changes
// something. Message is a sentence that says what.
type refusal struct {
	reason, message string
}

func (r *refusal) Error() string { return r.message }

// errForeign is the error of a step that met an object that is not ours.
var errForeign = errors.New("an object of that name is there that Lodestone did not make")

// foreign says what to do about an object there that stands in the way.
func (m *mirror) foreign(s *space, k key) error {
	return &refusal{reason: "NameTaken", message: fmt.Sprintf(
		"%s %s did not follow the pods of its namespace to cluster %s: in namespace %s there another %s has its name and is left alone; rename one of the two",
		k.kind, k.name, m.session.Cluster, s.namespace, k.kind)}
}

// sortError turns errors of the API server that will come again into refusals.
func sortError(err error) error {
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status):
		return err
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return err // the namespace may come back
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return &refusal{reason: "Refused", message: quote(status.Status().Message)}
	}
	return err
}

// quote returns what another cluster said in a form that can be shown: one line
// of bounded length.
func quote(message string) string {
	const longest = 400
	line := strings.Join(strings.FieldsFunc(message, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if runes := []rune(line); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return line
}

// told remembers who was told what, so that a refusal that stays is told once.
type told struct {
	mu       sync.Mutex
	messages map[key]map[types.UID]string
}

// first reports whether a message is new for an object, and remembers it.
func (t *told) first(k key, object types.UID, message string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.messages == nil {
		t.messages = map[key]map[types.UID]string{}
	}
	if t.messages[k] == nil {
		t.messages[k] = map[types.UID]string{}
	}
	if t.messages[k][object] == message {
		return false
	}
	t.messages[k][object] = message
	return true
}

func (t *told) forget(k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.messages, k)
}

// tell writes events on the pods that need an object, or on the Service that is
// not copied.
func (m *mirror) tell(k key, no *refusal) {
	message := no.message
	if no.reason == "Refused" {
		message = fmt.Sprintf("%s %s did not follow the pods of its namespace to cluster %s: %s; ask the owner of that cluster, or change the %s",
			k.kind, k.name, m.session.Cluster, no.message, k.kind)
	}
	event := func(uid types.UID, object runtime.Object) {
		if m.told.first(k, uid, message) {
			m.Recorder.Event(object, corev1.EventTypeWarning, no.reason, message)
		}
	}
	if k.kind == serviceKind {
		if service, err := m.serviceLister.Services(k.namespace).Get(k.name); err == nil {
			event(service.UID, service)
		}
		return
	}
	for _, pod := range m.needing(k) {
		event(pod.UID, pod)
	}
}
