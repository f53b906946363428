package steps

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/provisioner/claims/route"
)

// Action is what a step does, with all parameters: one of the types below.
type Action interface {
	// is returns the name of the action in metrics, events and logs, which stays when the
	// type is renamed, and where its request goes: keys.Home or a remote cluster.
	is() (verb, cluster string)
}

type (
	// RecordCluster writes the chosen cluster on the claim.
	RecordCluster struct {
		To string
	}
	// CreateBacking creates the backing claim.
	CreateBacking struct {
		Route route.Route
	}
	// CreateVolume hands over the virtual volume to be created.
	CreateVolume struct {
		Route   route.Route
		Backing Backing
	}
	// MarkPublished records on the backing claim that its virtual volume exists or is about
	// to be created.
	MarkPublished struct {
		Backing Backing
	}
	// RemoveBacking deletes a backing claim that was never published. With a refusal, which
	// only that backing claim shows, it also reschedules the claim.
	RemoveBacking struct {
		Backing Backing
		Refusal *Refusal
	}
	// Reschedule removes the selected node from the claim; the refusal is nil if no cluster
	// or node refused it.
	Reschedule struct {
		Refusal *Refusal
	}
	// RequeuePods writes the claim so that kube-scheduler retries the pods that wait for
	// it.
	RequeuePods struct{}
	// ReleaseBacking deletes the backing claim of a released volume.
	ReleaseBacking struct {
		Backing Backing
	}
	// ConfirmGone asks the API server whether a backing claim that is not in the cache any
	// more, and its real volume, are gone.
	ConfirmGone struct {
		Ref backing.Ref
	}
	// FinishVolume allows the released virtual volume to be deleted.
	FinishVolume struct{}
	// UpdateVolume updates the virtual volume from the real one.
	UpdateVolume struct {
		Backing Backing
	}
	// ExpandBacking changes the requested size of a published backing claim.
	ExpandBacking struct {
		Backing Backing
		Size    resource.Quantity
	}
	// UpdateClaimStatus writes the size status of a claim at home, virtual or backing. All
	// else in Status is as observed.
	UpdateClaimStatus struct {
		Backing Backing
		On      *corev1.PersistentVolumeClaim
		Status  *corev1.PersistentVolumeClaimStatus
	}
	// MarkFixedSize writes on a claim why its volume cannot be expanded; empty: it can.
	MarkFixedSize struct {
		Why string
	}
	// ModifyBacking sets the attributes class of the backing claim to that of the virtual
	// claim.
	ModifyBacking struct {
		Backing Backing
	}
	// SyncMetadata sets labels and annotations of the backing claim, and removes those that
	// are nil.
	SyncMetadata struct {
		Backing             Backing
		Labels, Annotations map[string]any
	}
	// ReadEvents reads the events of a waiting backing claim.
	ReadEvents struct {
		Backing Backing
	}
	// HealBacking takes the next step to replace the backing claim Ref, which somebody
	// deleted. Backing.Claim is the claim that has its name now, nil if there is none.
	HealBacking struct {
		Cure    Cure
		Ref     backing.Ref
		Backing Backing
	}
	// MakeStandIn creates what is missing of the stand-in of a snapshot.
	MakeStandIn struct {
		StandIn StandIn
	}
	// RemoveStandIn deletes a stand-in.
	RemoveStandIn struct {
		StandIn StandIn
	}
	// RecordSource writes on the claim in which cluster its snapshot is; empty: unknown.
	RecordSource struct {
		In string
	}
	// LockClaim makes new pods of the claim wait, because newer data of it exists than what its volume stands for, or because its
	// twin is bound to another volume than that.
	LockClaim struct{}
	// ShowTrouble sets the condition of the claim about its volume; nil removes it.
	ShowTrouble struct {
		Condition *corev1.PersistentVolumeClaimCondition
	}
)

// Cure is the action of a step of healing: the backing claim at home that somebody deleted
// goes, and a new one is bound to the same real volume. At every moment the real volume has
// a backing claim with our finalizer or the policy Retain.
type Cure string

// The cures, in order.
const (
	// Begin records on the virtual volume that its backing claim is being healed, and the
	// reclaim policy that the real volume must have afterwards.
	Begin Cure = "Begin"
	// Retain sets policy Retain, so that the real volume outlives its claim.
	Retain Cure = "Retain"
	// LetGo removes our finalizer from the deleted claim.
	LetGo Cure = "LetGo"
	// Free clears the UID in the real volume's claimRef, so that it waits for a new claim
	// of the same name.
	Free Cure = "Free"
	// Rebuild creates that claim.
	Rebuild Cure = "Rebuild"
	// Adopt makes the virtual volume name the new backing claim: the one created at home,
	// or one that was recreated in a remote cluster.
	Adopt Cure = "Adopt"
	// Restore gives the real volume its own reclaim policy back.
	Restore Cure = "Restore"
	// End removes the record.
	End Cure = "End"
)

func (RecordCluster) is() (verb, cluster string)     { return "Record", keys.Home }
func (a CreateBacking) is() (verb, cluster string)   { return "Create", a.Route.Cluster }
func (CreateVolume) is() (verb, cluster string)      { return "Publish", keys.Home }
func (a MarkPublished) is() (verb, cluster string)   { return "Mark", a.Backing.Cluster }
func (a RemoveBacking) is() (verb, cluster string)   { return "Remove", a.Backing.Cluster }
func (Reschedule) is() (verb, cluster string)        { return "Reschedule", keys.Home }
func (RequeuePods) is() (verb, cluster string)       { return "Wake", keys.Home }
func (a ReleaseBacking) is() (verb, cluster string)  { return "Release", a.Backing.Cluster }
func (a ConfirmGone) is() (verb, cluster string)     { return "Confirm", a.Ref.Cluster }
func (FinishVolume) is() (verb, cluster string)      { return "Finish", keys.Home }
func (UpdateVolume) is() (verb, cluster string)      { return "Update", keys.Home }
func (a ExpandBacking) is() (verb, cluster string)   { return "Expand", a.Backing.Cluster }
func (UpdateClaimStatus) is() (verb, cluster string) { return "Reflect", keys.Home }
func (MarkFixedSize) is() (verb, cluster string)     { return "Fix", keys.Home }
func (a ModifyBacking) is() (verb, cluster string)   { return "Modify", a.Backing.Cluster }
func (a SyncMetadata) is() (verb, cluster string)    { return "Carry", a.Backing.Cluster }
func (a ReadEvents) is() (verb, cluster string)      { return "Ask", a.Backing.Cluster }
func (HealBacking) is() (verb, cluster string)       { return "Heal", keys.Home }
func (MakeStandIn) is() (verb, cluster string)       { return "Stage", keys.Home }
func (RemoveStandIn) is() (verb, cluster string)     { return "Unstage", keys.Home }
func (RecordSource) is() (verb, cluster string)      { return "Locate", keys.Home }
func (LockClaim) is() (verb, cluster string)         { return "Lock", keys.Home }
func (ShowTrouble) is() (verb, cluster string)       { return "Show", keys.Home }
