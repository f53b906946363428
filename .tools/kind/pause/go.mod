module github.com/lodestone-storage/lodestone/tools/kind/pause

go 1.26.0
