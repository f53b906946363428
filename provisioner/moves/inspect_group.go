package moves

import "github.com/lodestone-storage/lodestone/provisioner/moves/record"

// oneSource refuses a claim whose data is in another cluster than that of the claims before
// it: a move has one source, of which it is asked whether it can be reached, and which can
// be given up.
func oneSource(before []record.Claim, claim *record.Claim) error {
	if len(before) == 0 || before[0].Source.Ref.Cluster == claim.Source.Ref.Cluster {
		return nil
	}
	return refuse("the data of claim %q is in cluster %s and that of claim %q in cluster %s, and a move has one source: stop the pods that use them, and move them one after another",
		before[0].Name, before[0].Source.Ref.Cluster, claim.Name, claim.Source.Ref.Cluster)
}
