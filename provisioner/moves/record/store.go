package record

import "github.com/lodestone-storage/lodestone/pkg/moverepository"

// Store is the object store, or the claim beside the movers, that the content of a claim
// travels through.
type Store struct {
	// Cluster is the RemoteCluster that names it.
	Cluster string `json:"cluster"`
	// Ticket is what the claim's movers get. It is kept while there may be movers.
	Ticket moverepository.Ticket `json:"ticket"`
}

// Place names it, as the end of a sentence.
func (s *Store) Place() string {
	if s.Ticket.Claim != "" {
		return s.Ticket.Noun() + ", the repository of cluster " + s.Cluster
	}
	return s.Ticket.Noun() + " of cluster " + s.Cluster
}

// disarm forgets what opens a repository, of a record that nobody makes movers from
// any more.
func (r *Record) disarm() {
	for i := range r.Claims {
		if known := r.Claims[i].Store; known != nil {
			r.Claims[i].Store = &Store{Cluster: known.Cluster}
		}
	}
}
