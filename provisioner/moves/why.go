package moves

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/lodestone-storage/lodestone/provisioner/backing"
)

// unhurried is how long a mover may take to start before its events are looked for.
const unhurried = 2 * time.Second

// whyNot says why a mover does not run whose status says nothing of it: how far its pod
// is, and what the latest warning about it or its claim says. pod is nil where a
// ShadowPod has none yet.
func whyNot(ctx context.Context, at site, ref backing.Ref, pod *corev1.Pod) string {
	if pod == nil {
		return "the remote agent of cluster " + ref.Cluster + " has not made its pod yet: if this lasts, see whether the agent runs, and the events of the ShadowPod there"
	}
	text := "it starts on node " + pod.Spec.NodeName
	if pod.Spec.NodeName == "" {
		text = "it has no node yet"
		if claim, err := claimAt(ctx, at, ref.Namespace, ref.Name); err == nil && claim != nil && claim.Status.Phase != corev1.ClaimBound {
			text += fmt.Sprintf(", and its real claim %s is %s", ref.Key(), claim.Status.Phase)
		}
	}
	if time.Since(pod.CreationTimestamp.Time) < unhurried {
		return text
	}
	for _, name := range []string{pod.Name, ref.Name} {
		if warned := lastWarning(ctx, at, ref.Namespace, name); warned != "" {
			return text + ": " + warned
		}
	}
	return text
}

// lastWarning returns the latest warning about an object; empty where there is none, or
// events cannot be read: they are for people, and nothing depends on them.
func lastWarning(ctx context.Context, at site, namespace, name string) string {
	list, err := at.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.name": name, "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil {
		return ""
	}
	var last *corev1.Event
	for i := range list.Items {
		if event := &list.Items[i]; event.InvolvedObject.Name == name && (last == nil || !told(event).Before(told(last))) {
			last = event
		}
	}
	if last == nil {
		return ""
	}
	return last.Reason + ": " + last.Message
}

// told is when an event was last seen.
func told(event *corev1.Event) time.Time {
	if event.LastTimestamp.IsZero() {
		return event.EventTime.Time
	}
	return event.LastTimestamp.Time
}

// longest is how much of what clusters say goes into a sentence, in bytes.
const longest = 1024

// sentence makes what was said elsewhere fit for a status: one line that is not too long.
func sentence(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
