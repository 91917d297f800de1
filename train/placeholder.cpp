namespace duet {}
