module penstock/gamecore

go 1.19
