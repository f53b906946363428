package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lodestone-storage/lodestone/provisioner/backing"
	"github.com/lodestone-storage/lodestone/provisioner/route"
)

// Verb names what a step does.
type Verb string

// The verbs of a step.
const (
	// Idle does nothing: there is nothing to do until something changes.
	Idle Verb = "Idle"
	// Record writes the chosen cluster on the claim.
	Record Verb = "Record"
	// Create creates the backing claim.
	Create Verb = "Create"
	// Publish hands the virtual volume over to be created.
	Publish Verb = "Publish"
	// Mark records on the backing claim that its virtual volume exists.
	Mark Verb = "Mark"
	// Remove removes a backing claim that was never published.
	Remove Verb = "Remove"
	// Reschedule takes the selected node off the claim.
	Reschedule Verb = "Reschedule"
	// Wake touches the claim so that its pods are looked at again.
	Wake Verb = "Wake"
	// Release deletes the backing claim of a released volume.
	Release Verb = "Release"
	// Confirm asks whether backing claim and real volume are gone.
	Confirm Verb = "Confirm"
	// Finish lets the released virtual volume go.
	Finish Verb = "Finish"
	// Update brings the virtual volume in step with the real one.
	Update Verb = "Update"
	// Expand changes the size that a published backing claim asks for.
	Expand Verb = "Expand"
	// Reflect writes on a claim at home what became of its size.
	Reflect Verb = "Reflect"
	// Fix says on a claim whether its real class allows expansion.
	Fix Verb = "Fix"
	// Modify brings the attributes class of the backing claim in step with the
	// virtual claim's, Carry labels and annotations.
	Modify Verb = "Modify"
	Carry  Verb = "Carry"
	// Ask reads the events of a backing claim that waits.
	Ask Verb = "Ask"
	// Heal takes the next step towards a twin in the place of one that somebody
	// deleted.
	Heal Verb = "Heal"
	// Stage makes the stand-in of a snapshot, Unstage removes it, Locate says on the
	// claim where its snapshot is.
	Stage   Verb = "Stage"
	Unstage Verb = "Unstage"
	Locate  Verb = "Locate"
	// ShowTrouble writes on the claim what is wrong with its volume, or that nothing is.
	ShowTrouble Verb = "Show"
)

// Step is the next thing to do for a claim.
type Step struct {
	Verb Verb
	// Cluster is where the request goes: keys.Home or a remote cluster.
	Cluster string
	// Route is set for Record, Create and Publish.
	Route route.Route
	// Backing is set for Publish, Mark, Remove, Release, Update, Expand, Reflect, Modify,
	// Carry and Ask, where a claim waits until it is bound, and for Heal: then its claim
	// is the one that has the twin's name, nil if none has.
	Backing Backing
	// Labels and Annotations are set for Carry: what to set, and with nil what to
	// remove.
	Labels, Annotations map[string]any
	// Ref is set for Confirm, a backing claim that is no longer seen, and for Heal.
	Ref backing.Ref
	// Cure is set for Heal.
	Cure Cure
	// StandIn is set for Stage and Unstage, Located for Locate.
	StandIn StandIn
	Located string
	// Refusal is set for Reschedule where a place refused the claim, and for
	// Remove where that shows in the removed claim alone: then the claim is
	// rescheduled in the same step.
	Refusal *Refusal
	// Size is set for Expand.
	Size resource.Quantity
	// On and Status are set for Reflect: the claim, and what its status should say
	// of its size. All else in Status is as it was seen.
	On     *corev1.PersistentVolumeClaim
	Status *corev1.PersistentVolumeClaimStatus
	// Fixed is set for Fix: why the volume keeps its size, empty if it may grow.
	Fixed string
	// Trouble is one word for what is wrong with a volume that exists, empty for
	// nothing.
	Trouble string
	// Shows is the sentence of the condition that the claim has as long as Trouble lasts;
	// empty where other conditions tell of it.
	Shows string
	// Condition is set for ShowTrouble; nil: the claim is to have none any more.
	Condition *corev1.PersistentVolumeClaimCondition
	// Left is a backing claim that may hold data and whose claim and volume at home
	// are gone, nil for none.
	Left *Backing
	// Unknown says that nothing is known now of a volume that exists: what was known
	// last is the best there is, but for Trouble, if there is one.
	Unknown bool
	// Tell is what the user should know, nil for nothing.
	Tell *Message
	// After is how long until the claim must be looked at again even if nothing
	// changes; 0 means no such need.
	After time.Duration
}

// Refusal is why a place refused a claim.
type Refusal struct {
	Cluster string
	// Node is set when only that node refused.
	Node            string
	Reason, Message string
}

// Message is an event: on the claim while there is one, else on the volume.
type Message struct {
	Warning bool
	// Reason is one word, Text one sentence.
	Reason, Text string
}
