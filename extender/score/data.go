package score

import "github.com/lodestone-storage/lodestone/extender/snapshot"

// Data is how much of a pod's data is in a cluster: that of the claims that it
// mounts, and of those that it wants to be near. Volumes that may be anywhere
// count nowhere.
type Data struct {
	// Pull is the share, from 0 to 1.
	Pull float64 `json:"pull"`
	// Bytes are there, of Of in all.
	Bytes float64 `json:"bytes"`
	Of    float64 `json:"of"`
}

// data sums up capacities. Sums may exceed an int64; a float is exact enough for
// ten steps.
type data struct {
	bytes map[string]float64
	total float64
}

func (d *data) add(claim snapshot.PodClaim) {
	cluster, _ := claim.DataIn()
	if cluster == "" || claim.Volume.Bytes <= 0 {
		return
	}
	if d.bytes == nil {
		d.bytes = map[string]float64{}
	}
	d.bytes[cluster] += float64(claim.Volume.Bytes)
	d.total += float64(claim.Volume.Bytes)
}

func (d *data) in(cluster string) (Data, bool) {
	if d.total == 0 {
		return Data{}, false
	}
	here := d.bytes[cluster]
	return Data{Pull: here / d.total, Bytes: here, Of: d.total}, true
}
