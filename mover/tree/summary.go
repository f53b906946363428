package tree

// Summary is what a manifest says of the whole tree.
type Summary struct {
	// Version is that of the root's definition.
	Version int `json:"version"`
	// Root is the hash over everything that a copy must keep.
	Root Hash `json:"root"`
	// Identity tells which directory was scanned.
	Identity Identity `json:"identity"`
	// Started is when the scan began, by the clock of the machine that scanned.
	Started Time `json:"started"`
	// Margin is how many nanoseconds before Started a change time must be for the
	// entry to count as settled.
	Margin int64 `json:"margin"`
	// Entries counts all entries, the root among them; Files only files.
	Entries uint64 `json:"entries"`
	Files   uint64 `json:"files"`
	// Inodes counts what the target needs: hard links count once.
	Inodes uint64 `json:"inodes"`
	// Bytes are the sizes of all files, Allocated what they take where they are; a
	// file with several names counts once in both.
	Bytes     uint64 `json:"bytes"`
	Allocated uint64 `json:"allocated"`
	// Hashes is how many bytes the hashes of all blocks take in the manifest at most, as
	// far as sizes tell.
	Hashes uint64 `json:"hashes"`
	// LinkMembers counts names that are hard links to a name earlier in the tree.
	LinkMembers uint64 `json:"linkMembers"`
	// ReadFiles and ReadBytes tell how much content this scan read; the rest was taken
	// over from the earlier manifest.
	ReadFiles uint64 `json:"readFiles"`
	ReadBytes uint64 `json:"readBytes"`
	// Unsettled counts entries that changed or vanished while they were scanned.
	Unsettled uint64 `json:"unsettled"`
	// Device says that this is a block volume.
	Device bool `json:"device,omitempty"`
	// Shallow says that contents were not read: Root is not that of a copy.
	Shallow bool `json:"shallow,omitempty"`
	// OnlyLarge says that it tells of some files of LargeFrom and more, and of nothing else.
	OnlyLarge bool `json:"onlyLarge,omitempty"`
	// SeesTrusted says whether the scan could see attributes named trusted.*, for
	// which Linux demands CAP_SYS_ADMIN.
	SeesTrusted bool `json:"seesTrusted"`
	// Needs are the abilities the target must have.
	Needs []Need `json:"needs,omitempty"`
	// Findings are what no copy can keep, the first of each kind.
	Findings []Finding `json:"findings,omitempty"`
}
