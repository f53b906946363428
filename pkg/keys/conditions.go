package keys

// VolumeTrouble is the type of the condition of a virtual claim with whose volume
// something is wrong now. A claim of which nothing is wrong does not have it.
const VolumeTrouble = "lodestone.dev/VolumeTrouble"
