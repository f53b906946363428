package library

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// begun is the reason of the library's event that a volume is about to be made. When
// it is asked here, the data has its place already: the event that the volume was
// made follows at once, and one event for a claim is half as much to write as two.
const begun = "Provisioning"

// terse is a client that leaves that event out.
type terse struct{ kubernetes.Interface }

// CoreV1 implements kubernetes.Interface.
func (t terse) CoreV1() typedcorev1.CoreV1Interface { return terseCore{t.Interface.CoreV1()} }

type terseCore struct{ typedcorev1.CoreV1Interface }

// Events implements typedcorev1.EventsGetter.
func (t terseCore) Events(namespace string) typedcorev1.EventInterface {
	return terseEvents{t.CoreV1Interface.Events(namespace)}
}

type terseEvents struct{ typedcorev1.EventInterface }

// CreateWithEventNamespace implements typedcorev1.EventExpansion.
func (t terseEvents) CreateWithEventNamespace(event *corev1.Event) (*corev1.Event, error) {
	if event.Reason == begun && event.Type == corev1.EventTypeNormal {
		return event, nil
	}
	return t.EventInterface.CreateWithEventNamespace(event) //nolint:staticcheck,wrapcheck // what the broadcaster of the library calls, and it wraps nothing
}
