package mirror

import "github.com/lodestone-storage/lodestone/provisioner/backing"

// Source is the backing claim that a snapshot is taken of: the one that the virtual
// volume names now, which is another than the one of its handle if that was made anew.
// Empty if there is no volume, or if it names one in another place.
func Source(o Observation) backing.Ref {
	if o.Virtual == nil {
		return backing.Ref{}
	}
	ref, err := backing.RefOf(o.Virtual)
	if err != nil || ref.Cluster != o.Ref.Cluster || ref.Key() != o.Ref.Key() {
		return backing.Ref{}
	}
	return ref
}
